// Package integrations tests what other tools read of a LeaderWorkerSet: kstatus, by which Helm and
// Flux wait, the scripts for Argo CD, and the configuration of kube-state-metrics.
//
// The sets are those that the operator wrote in the tests of internal/lws: see integrations/testdata.
package integrations
