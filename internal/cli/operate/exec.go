package operate

import (
	"cmp"
	"context"
	"errors"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/kubectl/pkg/util/term"
)

// Exec runs a command in a container. Its error has the exit code.
type Exec struct{ options corev1.PodExecOptions }

// defaultContainer names the container of a pod that commands mean.
const defaultContainer = "kubectl.kubernetes.io/default-container"

// Flags implements Command.
func (e *Exec) Flags(flags *pflag.FlagSet) {
	flags.StringVarP(&e.options.Container, "container", "c", "", "the container; without it, the one of the annotation "+defaultContainer+", or the first")
	flags.BoolVarP(&e.options.Stdin, "stdin", "i", false, "pass standard input to the command")
	flags.BoolVarP(&e.options.TTY, "tty", "t", false, "give the command a terminal")
}

// Run implements Command.
func (e *Exec) Run(ctx context.Context, t *Target) error {
	terminal := term.TTY{In: t.In, Out: t.Out, Raw: e.options.TTY}
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
	pod, err := client.CoreV1().Pods(t.Pods[0].Namespace).Get(ctx, t.Pods[0].Name, metav1.GetOptions{}) // a cache has no more than we decide from
	if err != nil {
		return err
	}
	e.options.Container = cmp.Or(e.options.Container, pod.Annotations[defaultContainer], pod.Spec.Containers[0].Name)
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
		streams.Tty, streams.Stderr, streams.TerminalSizeQueue = true, nil, sizes{terminal.MonitorSize(terminal.GetSize())}
	}
	return terminal.Safe(func() error { return executor.StreamWithContext(ctx, streams) })
}

// sizes are those that a terminal has.
type sizes struct{ term.TerminalSizeQueue }

// Next implements remotecommand.TerminalSizeQueue.
func (s sizes) Next() *remotecommand.TerminalSize {
	if s.TerminalSizeQueue == nil { // the output is no terminal
		return nil
	}
	if next := s.TerminalSizeQueue.Next(); next != nil {
		return &remotecommand.TerminalSize{Width: next.Width, Height: next.Height}
	}
	return nil
}
