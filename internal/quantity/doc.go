// Package quantity finds resource quantities that take too long to decode.
//
// A few bytes can be a number of two thousand million digits. The core type for quantities
// takes minutes to write it, or panics when it is compared. Objects that the API server has
// not validated are checked here before they are decoded.
//
// It knows Go types, JSON and the text of quantities. It refuses to know what an object is
// for, and checks cost alone: the decoder and admission refuse what is wrong.
package quantity
