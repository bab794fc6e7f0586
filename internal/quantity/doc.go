// Package quantity finds amounts of resources that cost more to read than they
// are long.
//
// A few bytes can name a number of two thousand million digits, and the core
// type for quantities writes it out: it does not return for minutes, or panics
// when such a number is compared. Whoever decodes objects that the API server
// has not judged yet, or that it never judges, asks here first.
//
// It knows Go types, JSON and the text of quantities. It refuses to know what an
// object is for, and judges nothing but cost: what is merely wrong is left to
// the decoder and to admission.
package quantity
