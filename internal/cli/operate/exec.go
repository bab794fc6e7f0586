package operate

import (
	"cmp"
	"context"
	"errors"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/kubectl/pkg/util/term"
)

// Exec runs a command in a container. Its error has the exit code.
type Exec struct{ options corev1.PodExecOptions }

// defaultContainer names the container of a pod that commands mean. The API server takes the first where there is none.
const defaultContainer = "kubectl.kubernetes.io/default-container"

// Flags implements Command.
func (e *Exec) Flags(flags *pflag.FlagSet) {
	flags.StringVarP(&e.options.Container, "container", "c", "", "the container; without it, the one of the annotation "+defaultContainer+", or the first")
	flags.BoolVarP(&e.options.Stdin, "stdin", "i", false, "pass standard input to the command")
	flags.BoolVarP(&e.options.TTY, "tty", "t", false, "give the command a terminal")
}

// Run implements Command.
func (e *Exec) Run(ctx context.Context, t *Target) error {
	terminal, pod := term.TTY{In: t.In, Out: t.Raw, Raw: e.options.TTY}, t.Pods[0]
	switch {
	case len(t.Command) == 0:
		return errors.New("give the command after two dashes: exec NAME GROUP [WORKER] -- COMMAND")
	case e.options.TTY && (!e.options.Stdin || !terminal.IsTerminalIn()):
		return errors.New("-t needs -i, and a terminal as standard input")
	}
	client, err := kubernetes.NewForConfig(t.Config)
	if err != nil {
		return err
	}
	e.options.Container = cmp.Or(e.options.Container, pod.Annotations[defaultContainer])
	e.options.Command, e.options.Stdout, e.options.Stderr = t.Command, true, !e.options.TTY
	url := client.CoreV1().RESTClient().Post().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).SubResource("exec").
		VersionedParams(&e.options, scheme.ParameterCodec).URL()
	spdy, unable := remotecommand.NewSPDYExecutor(t.Config, "POST", url)
	socket, err := remotecommand.NewWebSocketExecutor(t.Config, "GET", url.String())
	if err := cmp.Or(unable, err); err != nil {
		return err
	}
	executor, err := remotecommand.NewFallbackExecutor(socket, spdy, func(err error) bool { // a proxy may know SPDY alone
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	})
	if err != nil {
		return err
	}
	streams := remotecommand.StreamOptions{Stdout: t.Out, Stderr: t.ErrOut}
	if e.options.Stdin {
		streams.Stdin = t.In
	}
	if e.options.TTY {
		streams.Tty, streams.Stdout, streams.Stderr, streams.TerminalSizeQueue = true, t.Raw, nil, sizes{terminal.MonitorSize(terminal.GetSize())}
	}
	return terminal.Safe(func() error { return executor.StreamWithContext(ctx, streams) })
}

// sizes are those that a terminal has.
type sizes struct{ term.TerminalSizeQueue }

// Next implements remotecommand.TerminalSizeQueue.
func (s sizes) Next() *remotecommand.TerminalSize {
	if next := s.TerminalSizeQueue.Next(); next != nil {
		return &remotecommand.TerminalSize{Width: next.Width, Height: next.Height}
	}
	return nil
}
