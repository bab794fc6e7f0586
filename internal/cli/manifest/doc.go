// Package manifest reads LeaderWorkerSets from files as the API server would:
// strictly, with the defaults of the schema and of the webhook filled in, and
// judged by the schema's rules and by admission.
//
// It knows what is wrong with a file and where. It refuses to know a cluster:
// what a set would replace is handed in.
package manifest
