// Package render shows what kubectl lockstep found: as values with stable JSON names, and as text.
//
// It knows what each number means. It reads no cluster, and no clock but the moment that it is given.
package render
