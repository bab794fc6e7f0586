// Package certs makes the API server trust the webhook server.
//
// It knows the certificate of the server, the Secret in which replicas share one
// authority, and the CA bundles of the webhook configurations. They change in this
// order, so that the API server always accepts the server:
//
//	Secret ──► bundles trust the new authority as well ──► the server presents the new certificate
//
// It refuses to know what the webhooks answer.
package certs
