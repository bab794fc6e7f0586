// Package helm drills the chart with Helm 3 and Helm 4 on the local control plane: make chart.
//
// It knows what users do with Helm. The operator runs outside the cluster, and the pods of its Deployment are
// simulated. The drills have the build tag "drills", so that other tests need not compile both versions of Helm.
package helm
