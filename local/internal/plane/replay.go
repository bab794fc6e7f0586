package plane

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/kubernetes/pkg/kubeapiserver"

	"lockstep.dev/lockstep/local/internal/archive"
)

const (
	// replayExtension tells kubectl lockstep, in the context of the kubeconfig, when its clock stands.
	replayExtension = "lockstep.dev/replay"

	// Names in the archives of kubectl lockstep report.
	momentFile      = "moment.json"
	objectsDir      = "objects/"
	definitionsKind = "customresourcedefinitions.apiextensions.k8s.io"

	// registry begins the keys of the API server in etcd.
	registry = "/registry/"
)

// Recording is what an archive of kubectl lockstep report has of a cluster.
type Recording struct {
	// moment is the extension of the kubeconfig: {"at": TIME}.
	moment []byte
	// stored are the values of etcd by their keys.
	stored map[string]string
}

// reportedKinds are the kinds of Kubernetes that a report has objects of.
var reportedKinds = strings.Fields(`pods services persistentvolumeclaims persistentvolumes nodes namespaces events configmaps
	replicationcontrollers statefulsets.apps controllerrevisions.apps deployments.apps replicasets.apps daemonsets.apps jobs.batch
	cronjobs.batch podgroups.scheduling.k8s.io workloads.scheduling.k8s.io`)

// ReadRecording reads an archive of kubectl lockstep report.
func ReadRecording(ctx context.Context, file string) (*Recording, error) {
	files, err := archive.Open(ctx, file)
	var r *Recording
	if err == nil {
		r, err = newRecording(files)
	}
	if err != nil {
		return nil, fmt.Errorf("%s is no archive of kubectl lockstep report: %w", file, err)
	}
	return r, nil
}

func newRecording(files map[string][]byte) (*Recording, error) {
	var at struct {
		At time.Time `json:"at"`
	}
	if err := json.Unmarshal(files[momentFile], &at); err != nil || at.At.IsZero() {
		return nil, fmt.Errorf("its %s has no time", momentFile)
	}
	r := &Recording{moment: files[momentFile], stored: map[string]string{}}
	for name, content := range files {
		object, isObject := strings.CutPrefix(strings.TrimSuffix(name, ".json"), objectsDir)
		resource, rest, found := strings.Cut(object, "/")
		if !isObject || !found {
			continue
		}
		_, isCustom := files[objectsDir+definitionsKind+"/"+resource+".json"]
		of := schema.ParseGroupResource(resource)
		if !isReported(of, isCustom, content) {
			return nil, fmt.Errorf("no report has %s", name)
		}
		r.stored[registry+storagePrefix(of, isCustom)+"/"+rest] = string(content)
	}
	return r, nil
}

// isReported reports whether a report may have an object. It has none that makes an API server send requests.
func isReported(of schema.GroupResource, isCustom bool, content []byte) bool {
	if of.String() != definitionsKind {
		return slices.Contains(reportedKinds, of.String()) || isCustom && of.Group != "apiregistration.k8s.io"
	}
	var definition struct{ Spec struct{ Conversion any } }
	return json.Unmarshal(content, &definition) == nil && definition.Spec.Conversion == nil
}

// storagePrefix is where the API server keeps a resource.
func storagePrefix(of schema.GroupResource, isCustom bool) string {
	if prefix, ok := kubeapiserver.SpecialDefaultResourcePrefixes[of]; ok {
		return prefix
	}
	if isCustom || of.Group == "apiextensions.k8s.io" {
		return of.Group + "/" + of.Resource
	}
	return of.Resource
}

// load writes the objects into an empty etcd before an API server runs on it. Through the API server they would
// get other UIDs and times, and lose their status.
func (r *Recording) load(ctx context.Context, l Layout, p Ports) error {
	tls, err := rest.TLSConfigFor(l.asAdmin(p))
	if err != nil {
		return err
	}
	etcd, err := clientv3.New(clientv3.Config{
		Context: ctx, Endpoints: []string{"https://" + address(p.EtcdClient)}, DialTimeout: probeTimeout, TLS: tls,
	})
	if err != nil {
		return err
	}
	defer etcd.Close()
	for key, value := range r.stored {
		if _, err := etcd.Put(ctx, key, value); err != nil {
			return fmt.Errorf("write the objects into etcd: %w", err)
		}
	}
	return nil
}

// stopClock makes kubectl lockstep answer as at the moment of the report, under this kubeconfig.
func (r *Recording) stopClock(kubeconfig string) error {
	config, err := clientcmd.LoadFromFile(kubeconfig)
	if err != nil {
		return err
	}
	for _, context := range config.Contexts {
		context.Extensions = map[string]runtime.Object{
			replayExtension: &runtime.Unknown{Raw: r.moment, ContentType: runtime.ContentTypeJSON},
		}
	}
	return clientcmd.WriteToFile(*config, kubeconfig)
}

// Replay brings up etcd and the API server alone, with the objects of a recording. No controller changes them.
func (c *Cluster) Replay(ctx context.Context, settings Settings, r *Recording) error {
	settings.Replay, settings.Nodes = true, 0
	return c.up(ctx, settings, func(ctx context.Context, state *State) error { return c.bringBack(ctx, state, r) })
}

func (c *Cluster) bringBack(ctx context.Context, state *State, r *Recording) error {
	if err := r.stopClock(c.Kubeconfig()); err != nil {
		return err
	}
	run, ctx, err := newLaunch(ctx, c, state)
	if err != nil {
		return err
	}
	if err := run.bring(ctx, Etcd); err != nil {
		return err
	}
	if err := r.load(ctx, c.Layout, state.Ports); err != nil {
		return err
	}
	c.tell("%d objects loaded", len(r.stored))
	return run.bring(ctx, APIServer)
}
