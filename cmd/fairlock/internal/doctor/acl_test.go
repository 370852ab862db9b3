package doctor

import (
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// docs/operating.md tells the same as this program; and its line is held to the scripts by the library's own tests.
func TestTheDocumentationHasTheSameACLLine(t *testing.T) {
	text, err := os.ReadFile("../../../../docs/operating.md")
	require.NoError(t, err)
	line := regexp.MustCompile(`(?m)^ACL SETUSER .*$`).FindString(string(text))
	assert.Equal(t, line, ACLLine("billing", "fairlock"))
}

func TestANamespaceIsNoPatternInTheACLLine(t *testing.T) {
	for namespace, want := range map[string]string{
		"billing":   "~billing:* &billing:wake:* ",
		`a*b?[c]`:   `~a\*b\?\[c\]:* &a\*b\?\[c\]:wake:* `,
		`back\`:     `~back\\:* &back\\:wake:* `,
		"two words": "~two?words:* &two?words:wake:* ", // a rule has no spaces
	} {
		assert.Contains(t, ACLLine("u", namespace), " "+want)
	}
}
