// Package expect says in one line what most tests expect: no error, and a value that equals another.
package expect

import (
	"fmt"

	"github.com/google/go-cmp/cmp"
)

// T is what a test, a benchmark and a property check offer.
type T interface {
	Helper()
	Fatalf(format string, args ...any)
}

// OK ends a test that met an error.
func OK(t T, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%v", err)
	}
}

// Value returns the value of a call that must not fail: expect.Value(os.ReadFile(name))(t).
func Value[V any](value V, err error) func(T) V {
	return func(t T) V {
		t.Helper()
		OK(t, err)
		return value
	}
}

// Checker is a T whose test goes on after a failure.
type Checker interface {
	T
	Errorf(format string, args ...any)
}

// Equal compares two values. A test whose values differ goes on, and says in which fields.
func Equal[V any](t Checker, want, got V) {
	t.Helper()
	Equalf(t, want, got, "they differ")
}

// Equalf is Equal, and says of what.
func Equalf[V any](t Checker, want, got V, of string, args ...any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got)\n%s", fmt.Sprintf(of, args...), diff)
	}
}

// Emptyf expects no values, and says of what.
func Emptyf[V any](t Checker, got []V, of string, args ...any) {
	t.Helper()
	if len(got) > 0 {
		t.Errorf("%s: got %v, want none", fmt.Sprintf(of, args...), got)
	}
}
