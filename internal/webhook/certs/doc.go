// Package certs keeps the webhook server trusted by the API server.
//
// It knows three things that must agree: the certificate the server presents,
// the Secret in which replicas share one authority, and the CA bundles of the
// webhook configurations. They change in an order in which no moment exists
// where the API server refuses the server:
//
//	Secret ──► bundles trust the new authority as well ──► server presents its certificate ──► bundles forget the old one
//
// It refuses to know what the webhooks answer. Making and judging certificates
// is pure and takes the time as an argument; only the keeper reads and writes
// the cluster.
package certs
