package cli

import (
	"path/filepath"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// The clock stands still under the context of a replay alone.
func TestTheClockOfAReplay(t *testing.T) {
	path, config := filepath.Join(t.TempDir(), "kubeconfig"), clientcmdapi.NewConfig()
	for _, name := range []string{"cluster", "replay", "broken"} {
		config.Clusters[name] = &clientcmdapi.Cluster{Server: "https://127.0.0.1:1"}
		config.Contexts[name] = &clientcmdapi.Context{Cluster: name}
	}
	extend := func(name, text string) {
		config.Contexts[name].Extensions = map[string]runtime.Object{
			replayExtension: &runtime.Unknown{Raw: []byte(text), ContentType: runtime.ContentTypeJSON},
		}
	}
	extend("replay", `{"at":"2026-11-26T04:36:50.123456789Z"}`)
	extend("broken", `{"at":"yesterday"}`)
	config.CurrentContext = "cluster"
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]time.Time{"": {}, "replay": time.Date(2026, 11, 26, 4, 36, 50, 123456789, time.UTC)} {
		o := &options{flags: genericclioptions.NewConfigFlags(true)}
		*o.flags.KubeConfig, *o.flags.Context = path, name
		if err := o.readClock(); err != nil || !o.at.Equal(want) {
			t.Errorf("context %q: the clock stands at %s, %v", name, o.at, err)
		}
	}
	o := &options{flags: genericclioptions.NewConfigFlags(true)}
	*o.flags.KubeConfig, *o.flags.Context = path, "broken"
	if err := o.readClock(); err == nil {
		t.Error("a broken extension is no error")
	}
}
