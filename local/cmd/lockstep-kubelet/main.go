//go:build kubelet

// Command lockstep-kubelet is the kubelet of the release that lockstep-local runs, and, with
// "proxy" as its first argument, its kube-proxy: the same command lines, the same code. The drills
// on a real node join them to a local control plane; see docs/design/0017-real-node.md.
//
// It is a program of its own behind a build tag, because nothing but those drills needs
// it: lockstep-local stays as small as it is, and vetting it all as quick.
package main

import (
	"context"
	"os"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // client metrics on /metrics
	_ "k8s.io/component-base/metrics/prometheus/version"  // build information on /metrics
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "proxy" {
		os.Args = append(os.Args[:1], os.Args[2:]...)
		os.Exit(cli.Run(proxy.NewProxyCommand()))
	}
	os.Exit(cli.Run(kubelet.NewKubeletCommand(context.Background())))
}
