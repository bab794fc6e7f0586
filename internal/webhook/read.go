package webhook

import (
	"errors"

	"k8s.io/apimachinery/pkg/runtime"
	strictjson "sigs.k8s.io/json"

	"lockstep.dev/lockstep/internal/quantity"
)

// reader decodes objects of type T that the API server has not validated: it calls mutating
// webhooks first, and any client can reach the webhook server.
//
// The path determines the type, whatever kind the object has. An object that chose its type
// would also choose where its quantities are not checked.
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
