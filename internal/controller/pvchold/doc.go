// Package pvchold has the API server refuse the deletion of claims that are in use.
//
// It knows which events concern which claims, and carries out what is decided about
// one claim, or one namespace, at a time. It refuses to know who holds a claim and
// why, and takes part in no deletion: the words on a claim are judged by the API
// server itself, with or without it.
package pvchold
