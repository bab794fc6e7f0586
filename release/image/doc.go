// Package image builds, writes and pushes the container image of the operator.
//
// It knows the layout of an OCI image: one layer with the program for each platform, an index of
// platforms, and a bill of materials that refers to each image. It refuses to know how programs are
// built. The same programs and options give the same bytes.
package image
