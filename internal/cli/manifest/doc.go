// Package manifest reads LeaderWorkerSets from files, and asks the API server what it would store.
//
// It knows YAML documents, lists, and what kubectl apply sends. It refuses to judge a set: defaults,
// validation and warnings are the API server's, by a dry run.
package manifest
