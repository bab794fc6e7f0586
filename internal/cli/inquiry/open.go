package inquiry

import (
	"context"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/cli/lws"
	"lockstep.dev/lockstep/internal/kinds"
	"lockstep.dev/lockstep/internal/pvc/workloads"
)

// Inquirer reads a cluster to explain PVCs.
type Inquirer struct {
	reader client.Reader
	// Brief reads no volumes and nodes for PVCs that are not being deleted.
	Brief bool
	Now   func() time.Time
	// ServedAs finds the version of a kind that is not built in. Nil: as described.
	ServedAs ServedAs
	mapper   *meta.DefaultRESTMapper
	// config is nil until it is read.
	config *configuration
}

// New returns an Inquirer that reads through reader.
func New(reader client.Reader) *Inquirer { return &Inquirer{reader: reader, Now: time.Now} }

// Open returns an Inquirer that cannot write.
func Open(config *rest.Config) (*Inquirer, error) {
	safe := lws.ReadOnly(config)
	safe.QPS = -1 // the API server limits its clients
	safe.WarningHandler = rest.NoWarnings{}
	mapper := newMapper()
	c, err := client.New(safe, client.Options{Scheme: lws.Scheme(), Mapper: mapper})
	if err != nil {
		return nil, err
	}
	server, err := discovery.NewDiscoveryClientForConfig(safe)
	if err != nil {
		return nil, err
	}
	i := New(c)
	i.mapper = mapper
	i.ServedAs = func(ctx context.Context, kind schema.GroupVersionKind) (schema.GroupVersionResource, error) {
		return kinds.Served(ctx, server.RESTClient(), kind)
	}
	return i, nil
}

// Mapper knows the kinds that are read without discovery, which a user may not be allowed.
func Mapper() meta.RESTMapper { return newMapper() }

func newMapper() *meta.DefaultRESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	for _, kind := range []schema.GroupVersionKind{
		corev1.SchemeGroupVersion.WithKind("ConfigMap"),
		corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"), corev1.SchemeGroupVersion.WithKind("Pod"),
		appsv1.SchemeGroupVersion.WithKind("StatefulSet"), appsv1.SchemeGroupVersion.WithKind("Deployment"),
		appsv1.SchemeGroupVersion.WithKind("ReplicaSet"), appsv1.SchemeGroupVersion.WithKind("DaemonSet"),
		batchv1.SchemeGroupVersion.WithKind("Job"), batchv1.SchemeGroupVersion.WithKind("CronJob"),
		lwsv1.GroupVersion.WithKind("LeaderWorkerSet"), workloads.JobSet.GroupVersionKind,
	} {
		m.Add(kind, meta.RESTScopeNamespace)
	}
	for _, kind := range []string{"Namespace", "Node", "PersistentVolume"} {
		m.Add(corev1.SchemeGroupVersion.WithKind(kind), meta.RESTScopeRoot)
	}
	return m
}
