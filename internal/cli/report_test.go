package cli

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// A report takes the place of nothing unless it is told to, and is never written to where a link leads.
func TestWhereAReportIsWritten(t *testing.T) {
	old := func(mode os.FileMode) func(string, string) error {
		return func(_, report string) error { return os.WriteFile(report, []byte("old"), mode) }
	}
	for name, tt := range map[string]struct {
		before        func(other, report string) error
		plain, forced bool // whether it is written
	}{
		"nothing":            {func(_, _ string) error { return nil }, true, true},
		"a file":             {old(0o644), false, true},
		"a read-only file":   {old(0o400), false, true},
		"a link to a file":   {os.Symlink, false, false},
		"a second name":      {os.Link, false, true},
		"a link to nothing":  {func(other, report string) error { return os.Symlink(other+".none", report) }, false, false},
		"a link to a device": {func(_, report string) error { return os.Symlink("/dev/null", report) }, false, false},
		"a directory":        {func(_, report string) error { return os.Mkdir(report, 0o700) }, false, false},
	} {
		for force, want := range map[bool]bool{false: tt.plain, true: tt.forced} {
			dir := t.TempDir()
			other, report := filepath.Join(dir, "other"), filepath.Join(dir, "report")
			if err := errors.Join(os.WriteFile(other, []byte("kept"), 0o644), tt.before(other, report)); err != nil {
				t.Fatal(err)
			}
			err := writeFile(report, bytes.NewBufferString("new"), force)
			if (err == nil) != want {
				t.Errorf("%s, force %t: got %v", name, force, err)
			}
			if text, _ := os.ReadFile(other); string(text) != "kept" {
				t.Errorf("%s, force %t: another file has %q", name, force, text)
			}
			if _, err := os.Stat(other + ".none"); err == nil {
				t.Errorf("%s, force %t: a link made a file", name, force)
			}
			if info, err := os.Lstat(report); want && (err != nil || info.Mode() != 0o600 || info.Size() != 3) {
				t.Errorf("%s, force %t: got %v, %v", name, force, info.Mode(), err)
			}
		}
	}
	if err := writeFile(filepath.Join(t.TempDir(), "none", "report"), bytes.NewBufferString("new"), false); err == nil {
		t.Error("a directory was made")
	}
}

// The directory of a report may be a link: the user chose it.
func TestADirectoryMayBeALink(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	if err := writeFile(filepath.Join(link, "report"), bytes.NewBufferString("new"), false); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "report")); err != nil || string(text) != "new" {
		t.Errorf("got %q, %v", text, err)
	}
}

// While a report is written with force, another process replaces it by a link again and again.
func TestALinkThatAppearsIsNotFollowed(t *testing.T) {
	dir := t.TempDir()
	other, report := filepath.Join(dir, "other"), filepath.Join(dir, "report")
	if err := os.WriteFile(other, []byte("kept"), 0o644); err != nil {
		t.Fatal(err)
	}
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-end:
				return
			default:
				_ = os.Symlink(other, report)
				_ = os.Remove(report)
			}
		}
	}()
	for range 2000 {
		_ = writeFile(report, bytes.NewBufferString("new"), true)
	}
	close(end)
	<-ended
	if text, _ := os.ReadFile(other); string(text) != "kept" {
		t.Errorf("another file has %q", text)
	}
}

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
