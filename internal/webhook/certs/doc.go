// Package certs keeps the API server's trust in the webhook server.
//
// It knows the certificate of the server, the Secret in which replicas share one
// authority, and the CA bundles of the webhook configurations. They change in this
// order, so that the API server accepts the server at every moment:
//
//	Secret ──► bundles trust the new authority as well ──► the server presents the new certificate
//
// It refuses to know what the webhooks answer.
package certs
