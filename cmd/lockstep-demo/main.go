// Command lockstep-demo shows Lockstep at work on this machine and leaves it
// running; with --down it ends what it left. It exits 0 only if everything it
// showed came true. While a demo runs, a second one says so and changes nothing.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"lockstep.dev/lockstep/internal/demo"
)

func main() {
	o := demo.Options{Out: os.Stdout}
	flag.StringVar(&o.Bin, "bin", "bin", "`directory` with the built programs")
	flag.StringVar(&o.Dir, "dir", ".demo", "`directory` the demo lives in")
	flag.StringVar(&o.Example, "example", "examples/inference.yaml", "`file` with the set to run")
	down := flag.Bool("down", false, "end what a demo left running")
	flag.Parse()
	klog.SetLogger(logr.Discard()) // what goes wrong is told in other words
	ctrllog.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	run := demo.Run
	if *down {
		run = demo.Down
	}
	err := run(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "\nerror:", err)
		os.Exit(1)
	}
}
