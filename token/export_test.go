package token

// RandomBytes decodes the random part of a token.
func RandomBytes(t Token) []byte {
	b, err := encoding.DecodeString(t.random())
	if err != nil {
		panic(err)
	}
	return b
}
