package plane

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/kubernetes/pkg/kubeapiserver"
)

const (
	// replayExtension tells kubectl lockstep, in the context of the kubeconfig, when its clock stands.
	replayExtension = "lockstep.dev/replay"

	// Names in the archives of kubectl lockstep report.
	momentFile      = "moment.json"
	objectsDir      = "objects/"
	definitionsKind = "customresourcedefinitions.apiextensions.k8s.io"

	// mostUnpacked bounds what an archive may hold.
	mostUnpacked = 1 << 30
	// registry begins the keys of the API server in etcd.
	registry = "/registry/"
	// writesAtOnce and bytesAtOnce bound a transaction. etcd takes 128 writes and 1.5 MiB.
	writesAtOnce = 100
	bytesAtOnce  = 1 << 20
)

// Recording is what an archive of kubectl lockstep report has of a cluster.
type Recording struct {
	// moment is the extension of the kubeconfig: {"at": TIME}.
	moment []byte
	// stored are the values of etcd by their keys.
	stored map[string]string
}

// ReadRecording reads an archive of kubectl lockstep report.
func ReadRecording(file string) (*Recording, error) {
	archive, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer archive.Close()
	files, err := unpack(archive)
	if err != nil {
		return nil, fmt.Errorf("%s is no archive of kubectl lockstep report: %w", file, err)
	}
	var at struct {
		At time.Time `json:"at"`
	}
	if err := json.Unmarshal(files[momentFile], &at); err != nil || at.At.IsZero() {
		return nil, fmt.Errorf("%s is no archive of kubectl lockstep report: its %s has no time", file, momentFile)
	}
	r := &Recording{moment: files[momentFile], stored: map[string]string{}}
	for name, content := range files {
		object, isObject := strings.CutPrefix(strings.TrimSuffix(name, ".json"), objectsDir)
		resource, rest, found := strings.Cut(object, "/")
		if !isObject || !found {
			continue
		}
		_, isCustom := files[objectsDir+definitionsKind+"/"+resource+".json"]
		r.stored[registry+storagePrefix(schema.ParseGroupResource(resource), isCustom)+"/"+rest] = string(content)
	}
	return r, nil
}

// unpack reads the files of an archive.
func unpack(archive io.Reader) (map[string][]byte, error) {
	packed, err := gzip.NewReader(archive)
	if err != nil {
		return nil, err
	}
	files, reader := map[string][]byte{}, tar.NewReader(io.LimitReader(packed, mostUnpacked))
	for {
		head, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return files, nil
		}
		if err != nil {
			return nil, err
		}
		if !fs.ValidPath(head.Name) || path.Clean(head.Name) != head.Name {
			return nil, fmt.Errorf("file %q has no proper name", head.Name)
		}
		if files[head.Name], err = io.ReadAll(reader); err != nil {
			return nil, err
		}
	}
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
	certificate, err := tls.LoadX509KeyPair(l.cert(etcdClient), l.key(etcdClient))
	if err != nil {
		return err
	}
	authorities := x509.NewCertPool()
	text, err := os.ReadFile(l.cert(clusterCA))
	if err != nil {
		return err
	}
	authorities.AppendCertsFromPEM(text)
	etcd, err := clientv3.New(clientv3.Config{
		Context: ctx, Endpoints: []string{"https://" + address(p.EtcdClient)}, DialTimeout: probeTimeout,
		TLS: &tls.Config{Certificates: []tls.Certificate{certificate}, RootCAs: authorities},
	})
	if err != nil {
		return err
	}
	defer etcd.Close()
	for _, keys := range r.batches() {
		var puts []clientv3.Op
		for _, key := range keys {
			puts = append(puts, clientv3.OpPut(key, r.stored[key]))
		}
		if _, err := etcd.Txn(ctx).Then(puts...).Commit(); err != nil {
			return fmt.Errorf("write the objects into etcd: %w", err)
		}
	}
	return nil
}

// batches returns the keys, in order, in groups that fit into one transaction each.
func (r *Recording) batches() (batches [][]string) {
	size := 0
	for _, key := range slices.Sorted(maps.Keys(r.stored)) {
		last, adds := len(batches)-1, len(key)+len(r.stored[key])
		if last < 0 || len(batches[last]) == writesAtOnce || size+adds > bytesAtOnce {
			batches, size = append(batches, nil), 0
			last++
		}
		batches[last], size = append(batches[last], key), size+adds
	}
	return batches
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
	if err := run.start(Etcd); err != nil {
		return err
	}
	if err := run.await(ctx, Etcd); err != nil {
		return err
	}
	if err := r.load(ctx, c.Layout, state.Ports); err != nil {
		return err
	}
	c.tell("%d objects loaded", len(r.stored))
	if err := run.start(APIServer); err != nil {
		return err
	}
	return run.await(ctx, APIServer)
}
