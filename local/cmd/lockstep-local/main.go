// Command lockstep-local is a Kubernetes control plane in one binary. Called by the name of a program inside it, or
// with that name as first argument, it is that program; otherwise it runs control planes made of them.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/component-base/version"

	"lockstep.dev/lockstep/local/internal/cli"
	"lockstep.dev/lockstep/local/internal/program"
)

func main() {
	if name, args, ok := program.Select(os.Args); ok {
		os.Exit(program.Run(name, args))
	}
	program.ForgetFlags()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := cli.Run(ctx, version.Get().GitVersion, program.Names(), os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}
