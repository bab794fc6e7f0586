package webhook

import (
	"errors"

	"k8s.io/apimachinery/pkg/runtime"
	strictjson "sigs.k8s.io/json"

	"lockstep.dev/lockstep/internal/quantity"
)

// reader decodes objects of type T that no schema has judged: mutating webhooks
// are asked before the API server validates, and the server answers whoever
// reaches it.
//
// The type is that of the path asked, whatever kind the object claims to be: one
// that could choose its type could choose where its quantities go unseen.
type reader[T any] struct{ quantities *quantity.Places }

func readerOf[T any]() reader[T] { return reader[T]{quantity.In[T]()} }

func (r reader[T]) object(from runtime.RawExtension) (*T, error) {
	if len(from.Raw) == 0 {
		return nil, errors.New("the request has no object")
	}
	if err := r.quantities.Check(from.Raw); err != nil {
		return nil, err
	}
	into := new(T)
	return into, strictjson.UnmarshalCaseSensitivePreserveInts(from.Raw, into)
}
