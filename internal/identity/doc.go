// Package identity tells who is who.
//
// A Kubernetes name outlives the object that bore it, so a name alone says
// nothing about which life an object belongs to. This package knows how to
// follow the chain of controller owners by UID and how to sort objects with a
// name into members, ghosts, orphans and squatters. It refuses to know how
// objects are fetched, what time it is, and what is done about any of them.
package identity
