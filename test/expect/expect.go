// Package expect says in one line what most tests expect: no error, a value that equals another, a part of a text, and
// any other condition.
package expect

import (
	"fmt"
	"strings"

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
	Must(t, err == nil, "%v", err)
}

// OKf is OK, and says of what.
func OKf(t T, err error, of string, args ...any) {
	t.Helper()
	Must(t, err == nil, "%s: %v", fmt.Sprintf(of, args...), err)
}

// Must ends a test unless a condition holds.
func Must(t T, holds bool, otherwise string, args ...any) {
	t.Helper()
	if !holds {
		t.Fatalf(otherwise, args...)
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

// That checks a condition. A test continues where it does not hold.
func That(t Checker, holds bool, otherwise string, args ...any) {
	t.Helper()
	if !holds {
		t.Errorf(otherwise, args...)
	}
}

// Says checks that a text has a part. What it is about stands in a line before the message.
func Says(t Checker, text, part string, about ...any) {
	t.Helper()
	That(t, strings.Contains(text, part), "%s%q does not say %q", fmt.Sprintln(about...), text, part)
}

// ErrorSays checks that there is an error, and that it has a part.
func ErrorSays(t Checker, err error, part string, about ...any) {
	t.Helper()
	says := err != nil && strings.Contains(err.Error(), part)
	That(t, says, "%sgot %v, want an error that says %q", fmt.Sprintln(about...), err, part)
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
	That(t, len(got) == 0, "%s: got %v, want none", fmt.Sprintf(of, args...), got)
}
