// Command kubectl-lockstep shows how LeaderWorkerSets stand and what the operator
// is about to do about them, and steers their rollouts. kubectl finds it as a
// plugin: kubectl lockstep.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	_ "k8s.io/client-go/plugin/pkg/client/auth" // every way a kubeconfig may name to log in
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"lockstep.dev/lockstep/internal/cli"
)

func main() {
	// What libraries log is told to the user in other words, or not at all.
	klog.SetLogger(logr.Discard())
	ctrllog.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	cmd := cli.NewCommand(genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr})
	cmd.SetArgs(cli.Args(os.Args))
	err := cmd.ExecuteContext(ctx)
	stop()
	if err != nil {
		if text := err.Error(); text != "" { // an exit code may say it all
			fmt.Fprintln(os.Stderr, "error:", text)
		}
		os.Exit(cli.ExitCode(err))
	}
}
