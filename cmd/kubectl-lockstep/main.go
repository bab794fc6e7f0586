// Command kubectl-lockstep shows and rolls out LeaderWorkerSets, and explains PersistentVolumeClaims.
// kubectl runs it as a plugin: kubectl lockstep.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	_ "k8s.io/client-go/plugin/pkg/client/auth" // all authentication plugins
	"k8s.io/client-go/util/exec"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"lockstep.dev/lockstep/internal/cli"
	"lockstep.dev/lockstep/internal/cli/argument"
)

// lastWords is how long an interrupted command may still print.
const lastWords = 300 * time.Millisecond

func main() {
	// Commands print errors themselves: the logs of libraries would repeat them.
	klog.SetLogger(logr.Discard())
	ctrllog.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, func() { // a read of a pipe, a write to one, and discovery know no context
		stop() // a second signal is not waited for
		time.Sleep(lastWords)
		os.Exit(1)
	})
	cmd := cli.NewCommand(genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr})
	cmd.SetArgs(argument.Args(os.Args))
	if err := cmd.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(cmd.ErrOrStderr(), "error:", err)
		ended := exec.CodeExitError{Code: 1} // of kubectl lockstep exec
		errors.As(err, &ended)
		os.Exit(ended.Code)
	}
}
