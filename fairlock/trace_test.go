package fairlock_test

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/fairlock/fairlock-go/fairlock"
)

// JoinTraces calls each callback of both, in order.
func TestJoinTraces(t *testing.T) {
	var called []string
	trace := func(of string) *fairlock.Trace {
		return tracing(func(name string, _ any) { called = append(called, of+" "+name) })
	}
	a := trace("a")
	joined := reflect.ValueOf(fairlock.JoinTraces(a, trace("b"))).Elem()
	half := reflect.ValueOf(fairlock.JoinTraces(a, &fairlock.Trace{})).Elem()
	for i := range joined.NumField() {
		name := joined.Type().Field(i).Name
		called = nil
		joined.Field(i).Call([]reflect.Value{reflect.Zero(joined.Field(i).Type().In(0))})
		assert.Equal(t, []string{"a " + name, "b " + name}, called)
		assert.False(t, half.Field(i).IsNil())
	}
	assert.Same(t, a, fairlock.JoinTraces(nil, a))
	assert.Same(t, a, fairlock.JoinTraces(a, nil))
	assert.Nil(t, fairlock.JoinTraces(nil, nil))
}
