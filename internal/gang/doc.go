// Package gang tells what schedulers that place groups whole want to see.
//
// It knows the object that such a scheduler knows a group by, what ties a pod to
// it, and when an object says what it should. It refuses to know how objects are
// read and written, and when they are to be made.
package gang
