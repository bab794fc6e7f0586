package operate

import (
	"context"
	"errors"
	"os"

	"github.com/spf13/pflag"
	"golang.org/x/term"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"
)

// Exec runs a command in a container. Its error has the exit code.
type Exec struct{ options corev1.PodExecOptions }

// defaultContainer names the container of a pod that commands mean.
const defaultContainer = "kubectl.kubernetes.io/default-container"

// Needs implements Command.
func (e *Exec) Needs() string { return "list pods and create pods/exec" }

// Flags implements Command.
func (e *Exec) Flags(flags *pflag.FlagSet) {
	flags.StringVarP(&e.options.Container, "container", "c", "", "the container; without it, the one of the annotation "+defaultContainer+", or the first")
	flags.BoolVarP(&e.options.Stdin, "stdin", "i", false, "pass standard input to the command")
	flags.BoolVarP(&e.options.TTY, "tty", "t", false, "give the command a terminal")
}

// Run implements Command.
func (e *Exec) Run(ctx context.Context, t *Target) error {
	if len(t.Command) == 0 {
		return errors.New("give the command after two dashes: exec NAME GROUP [WORKER] -- COMMAND")
	}
	pods, err := t.pods(ctx)
	if err != nil {
		return err
	}
	if e.options.Container == "" {
		e.options.Container = pods[0].Annotations[defaultContainer] // the API server takes the first where there is none
	}
	e.options.Command, e.options.Stdout, e.options.Stderr = t.Command, true, !e.options.TTY
	executor, err := e.executor(t, &pods[0])
	if err != nil {
		return err
	}
	streams := remotecommand.StreamOptions{Stdout: t.Out, Stderr: t.ErrOut, Tty: e.options.TTY}
	if e.options.Stdin {
		streams.Stdin = t.In
	}
	if !e.options.TTY {
		return executor.StreamWithContext(ctx, streams)
	}
	file, isFile := streams.Stdin.(*os.File)
	if !isFile || !term.IsTerminal(int(file.Fd())) {
		return errors.New("-t needs -i, and a terminal as standard input")
	}
	width, height, err := term.GetSize(int(file.Fd()))
	if err != nil {
		return err
	}
	streams.Stdout, streams.Stderr = t.Raw, nil
	streams.TerminalSizeQueue = &size{&remotecommand.TerminalSize{Width: uint16(width), Height: uint16(height)}}
	former, err := term.MakeRaw(int(file.Fd()))
	if err != nil {
		return err
	}
	return errors.Join(executor.StreamWithContext(ctx, streams), term.Restore(int(file.Fd()), former))
}

// executor speaks WebSocket, or SPDY to a server or through a proxy that does not.
func (e *Exec) executor(t *Target, pod *corev1.Pod) (remotecommand.Executor, error) {
	client, err := kubernetes.NewForConfig(t.Config)
	if err != nil {
		return nil, err
	}
	url := client.CoreV1().RESTClient().Post().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).SubResource("exec").
		VersionedParams(&e.options, scheme.ParameterCodec).URL()
	spdy, err := remotecommand.NewSPDYExecutor(t.Config, "POST", url)
	if err != nil {
		return nil, err
	}
	socket, err := remotecommand.NewWebSocketExecutor(t.Config, "GET", url.String())
	if err != nil {
		return nil, err
	}
	return remotecommand.NewFallbackExecutor(socket, spdy, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	})
}

// size tells once how large a terminal was when the command began.
type size struct{ untold *remotecommand.TerminalSize }

// Next implements remotecommand.TerminalSizeQueue.
func (s *size) Next() *remotecommand.TerminalSize {
	told := s.untold
	s.untold = nil
	return told
}
