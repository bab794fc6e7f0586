// Package program holds the foreign programs that are compiled into
// lockstep-local, each behind its usual command line. It knows how to become
// one of them; it knows nothing of clusters, directories or other processes.
package program

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/pflag"
	"go.etcd.io/etcd/server/v3/etcdmain"
	_ "k8s.io/client-go/plugin/pkg/client/auth" // kubectl's credential plugins
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // client metrics on /metrics
	_ "k8s.io/component-base/metrics/prometheus/version"  // build information on /metrics
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlexit "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kwokconfig "sigs.k8s.io/kwok/pkg/config"
	kwok "sigs.k8s.io/kwok/pkg/kwok/cmd"
	kwoklog "sigs.k8s.io/kwok/pkg/log"
	kwoksignals "sigs.k8s.io/kwok/pkg/utils/signals"

	"lockstep.dev/lockstep/local/internal/volumes"
	"lockstep.dev/lockstep/scheduling"
)

// programs maps a program's name to its main function. Each reads os.Args, as
// it would in a binary of its own, and returns its exit code. A scheduler configuration enables our plugin by name.
var programs = map[string]func() int{
	"etcd": func() int {
		etcdmain.Main(os.Args) // ends the process itself on any error
		return 0
	},
	"kube-apiserver":          func() int { return cli.Run(apiserver.NewAPIServerCommand()) },
	"kube-controller-manager": func() int { return cli.Run(controllers.NewControllerManagerCommand()) },
	"kube-scheduler": func() int {
		return cli.Run(scheduler.NewSchedulerCommand(scheduler.WithPlugin(scheduling.Name, scheduling.New)))
	},
	"kwok":            runKwok,
	"kubectl":         runKubectl,
	"kubelet-volumes": runKubeletVolumes,
}

// Names lists the programs inside, sorted.
func Names() []string {
	return slices.Sorted(maps.Keys(programs))
}

// Select finds the program that a command line asks for: by the name it was
// called under (a link named etcd), or by its first argument. args is what the
// program is to see as os.Args.
func Select(argv []string) (name string, args []string, ok bool) {
	for i, arg := range argv[:min(2, len(argv))] {
		if i == 0 {
			arg = filepath.Base(arg)
		}
		if _, ok := programs[arg]; ok {
			return arg, argv[i:], true
		}
	}
	return "", nil, false
}

// Run becomes the named program and returns its exit code. It may run once in
// a process: the programs share global flag sets and feature gates.
func Run(name string, args []string) int {
	os.Args = args
	return programs[name]()
}

// ForgetFlags empties the global flag set, which cobra adds to every command.
// Packages of the Kubernetes servers have put flags of theirs there, among
// them one that clashes with every other program's --version.
func ForgetFlags() {
	pflag.CommandLine = pflag.NewFlagSet(os.Args[0], pflag.ContinueOnError)
}

// runKubeletVolumes ends when the process that started it closes its standard
// input: a drill that dies must leave nothing behind.
func runKubeletVolumes() int {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	if err := volumes.Run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "kubelet-volumes:", err)
		return 1
	}
	return 0
}

func runKubectl() int {
	ForgetFlags()
	err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand())
	kubectlexit.CheckErr(err) // prints the error and exits with its code
	return 0
}

// runKwok reads kwok's configuration before its command is built, because the
// command's flag defaults are taken from it.
func runKwok() int {
	ForgetFlags()
	early := pflag.NewFlagSet("kwok", pflag.ContinueOnError)
	early.ParseErrorsAllowlist.UnknownFlags = true
	early.Usage = func() {}
	ctx, _ := kwoklog.InitFlags(kwoksignals.SetupSignalContext(), early)
	ctx, err := kwokconfig.InitFlags(ctx, early)
	if err == nil {
		command := kwok.NewCommand(ctx)
		command.PersistentFlags().AddFlagSet(early)
		err = command.ExecuteContext(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "kwok:", err)
		return 1
	}
	return 0
}
