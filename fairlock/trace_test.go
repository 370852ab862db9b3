package fairlock_test

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/fairlock/fairlock-go/fairlock"
)

// JoinTraces calls each callback of both, in order.
func TestJoinTraces(t *testing.T) {
	var a, b journal
	var order []*journal
	traceOf := func(j *journal) *fairlock.Trace {
		trace := j.trace()
		trace.Queued = func(i fairlock.QueuedInfo) { j.add("Queued", i); order = append(order, j) }
		return trace
	}
	joined := reflect.ValueOf(fairlock.JoinTraces(traceOf(&a), traceOf(&b))).Elem()
	for i := range joined.NumField() {
		name := joined.Type().Field(i).Name
		joined.Field(i).Call([]reflect.Value{reflect.Zero(joined.Field(i).Type().In(0))})
		assert.Len(t, a.all, i+1, name)
		assert.Len(t, b.all, i+1, name)
	}
	assert.Equal(t, []*journal{&a, &b}, order)

	trace := a.trace()
	assert.Same(t, trace, fairlock.JoinTraces(nil, trace))
	assert.Same(t, trace, fairlock.JoinTraces(trace, nil))
	assert.Nil(t, fairlock.JoinTraces(nil, nil))
	half := reflect.ValueOf(fairlock.JoinTraces(trace, &fairlock.Trace{})).Elem()
	for i := range half.NumField() {
		assert.False(t, half.Field(i).IsNil())
	}
}
