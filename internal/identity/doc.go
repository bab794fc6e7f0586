// Package identity sorts objects by the incarnation that they belong to.
//
// A name outlives its object, so a name alone does not say which incarnation an object belongs to.
// This package knows how to follow the chain of controller owners by UID and how to sort objects
// into owned, previous, orphan and foreign ones. It refuses to know how objects are read, what time
// it is, and what is done about any of them.
package identity
