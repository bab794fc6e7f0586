// Package bundle collects what a report of a problem needs, redacts it and packs it into one archive.
//
// It reads live with the user's credentials. What cannot be read is a line of the report. The objects suffice to
// let plan and why answer again elsewhere: lockstep-local up --from. The package knows no flags.
package bundle

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubeversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"lockstep.dev/lockstep/api/config/v1alpha1"
	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	clilws "lockstep.dev/lockstep/internal/cli/lws"
	clipvc "lockstep.dev/lockstep/internal/cli/pvc"
	"lockstep.dev/lockstep/internal/cli/redact"
	"lockstep.dev/lockstep/internal/cli/render"
	"lockstep.dev/lockstep/internal/gang"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/pvc/workloads"
)

const (
	// readWithin is how long all reads may take together. What is read later is missing.
	readWithin = 7 * time.Second
	// pageSize is the number of objects in one page of a list.
	pageSize = 500
)

// Request is what a report is about.
type Request struct {
	Config *rest.Config
	Live   client.Client
	// Namespace is that of the sets. Names are theirs; none means all sets and PVCs of the namespace.
	Namespace string
	Names     []string
	// Command is what the user typed.
	Command string
	// Now is the clock.
	Now func() time.Time
	// Warn receives what a watch complains about.
	Warn io.Writer
}

// Collect reads, redacts and packs a report. The error is NotFound if a named set does not exist.
func Collect(ctx context.Context, request Request) (*Bundle, error) {
	reading, done := context.WithTimeout(ctx, readWithin)
	defer done()
	c := &collector{Request: request, redactor: redact.New()}
	if err := c.readSets(reading); err != nil {
		return nil, err
	}
	c.readObjects(reading)
	c.readOperator(reading)
	c.moment = c.Now()
	c.survey(reading)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return c.bundle()
}

// collector is a report in the making.
type collector struct {
	Request
	redactor *redact.Redactor
	moment   time.Time
	sets     []*lwsv1.LeaderWorkerSet
	// objects are kept by the selection; definitions are made of names alone.
	objects     []client.Object
	definitions []*unstructured.Unstructured
	events      []corev1.Event
	operator    operatorFacts
	server      *kubeversion.Info
	// seen are outputs of commands, by file, and wanted the StatefulSets that the plans compare with.
	seen   []file
	wanted []*appsv1.StatefulSet
	logs   []file
	// missed says what the report lacks, and why.
	missed []string
}

// unlessAbsent returns the error of a read, unless it says that there is nothing to read.
func unlessAbsent(err error) error {
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// miss records what could not be read.
func (c *collector) miss(what string, err error) {
	if err == nil {
		return
	}
	why := "it was not read: " + err.Error()
	switch {
	case apierrors.IsForbidden(err):
		why = "you may not read it"
	case errors.Is(err, context.DeadlineExceeded):
		why = fmt.Sprintf("it was not read within %s", readWithin)
	}
	if line := what + ": " + why; !slices.Contains(c.missed, line) {
		c.missed = append(c.missed, line)
	}
}

func (c *collector) readSets(ctx context.Context) error {
	if len(c.Names) == 0 {
		list := &lwsv1.LeaderWorkerSetList{}
		if err := c.Live.List(ctx, list, client.InNamespace(c.Namespace)); unlessAbsent(err) != nil {
			return err
		}
		for i := range list.Items {
			c.sets = append(c.sets, &list.Items[i])
		}
	}
	for _, name := range c.Names {
		set := &lwsv1.LeaderWorkerSet{}
		if err := c.Live.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: name}, set); err != nil {
			return err
		}
		c.sets = append(c.sets, set)
	}
	for _, set := range c.sets {
		c.objects = append(c.objects, set)
	}
	return nil
}

// readObjects reads what belongs to the sets, what uses their PVCs, and what plans and explanations read besides.
func (c *collector) readObjects(ctx context.Context) {
	version, err := kubernetes.NewForConfig(c.Config)
	if err == nil {
		c.server, err = version.Discovery().ServerVersion()
	}
	c.miss("the version of Kubernetes", err)
	s := newSelection(c.sets, len(c.Names) == 0)
	for _, list := range []client.ObjectList{
		&corev1.PodList{}, &appsv1.ControllerRevisionList{}, &corev1.ServiceList{}, &corev1.PersistentVolumeClaimList{}, untypedList(gang.Kind),
		untypedList(gang.WorkloadKind), untypedList(gang.NativePodGroupKind),
	} {
		s.add(c.list(ctx, list), nil)
	}
	for _, list := range []client.ObjectList{
		&appsv1.StatefulSetList{}, &appsv1.DeploymentList{}, &appsv1.ReplicaSetList{}, &appsv1.DaemonSetList{}, &batchv1.JobList{}, &batchv1.CronJobList{},
	} {
		s.add(c.list(ctx, list), workloads.BuiltIn)
	}
	c.readConfigurations(ctx)
	for _, kind := range c.operator.kinds() {
		s.add(c.list(ctx, untypedList(kind.GroupVersionKind)), kind.Of)
	}
	c.objects = append(c.objects, s.kept()...)
	c.readCluster(ctx)
	c.readEvents(ctx)
}

func untypedList(kind schema.GroupVersionKind) client.ObjectList {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	return list
}

// list reads all objects of a kind in the namespace, page by page.
func (c *collector) list(ctx context.Context, list client.ObjectList) (all []client.Object) {
	options := client.ListOptions{Namespace: c.Namespace, Limit: pageSize}
	for {
		page := list.DeepCopyObject().(client.ObjectList)
		err := c.Live.List(ctx, page, &options)
		if err == nil {
			err = meta.EachListItem(page, func(object runtime.Object) error {
				all = append(all, object.(client.Object))
				return nil
			})
		}
		if err != nil || page.GetContinue() == "" {
			c.miss(c.kindOf(list), unlessAbsent(err))
			return all
		}
		options.Continue = page.GetContinue()
	}
}

// kindOf names the kind of an object or a list.
func (c *collector) kindOf(object runtime.Object) string {
	kind, err := c.Live.GroupVersionKindFor(object)
	if err != nil {
		kind = object.GetObjectKind().GroupVersionKind()
	}
	return strings.TrimSuffix(kind.Kind, "List") + "s"
}

// readCluster reads the namespace, the PersistentVolumes and nodes of what is kept, and the definitions of kinds.
func (c *collector) readCluster(ctx context.Context) {
	lookups := []*lookup{{Object: &corev1.Namespace{}, name: c.Namespace}}
	seen := map[string]bool{}
	want := func(object client.Object, name string) {
		if key := fmt.Sprintf("%T %s", object, name); name != "" && !seen[key] {
			seen[key], lookups = true, append(lookups, &lookup{Object: object, name: name})
		}
	}
	for _, object := range c.objects {
		switch o := object.(type) {
		case *corev1.PersistentVolumeClaim:
			want(&corev1.PersistentVolume{}, o.Spec.VolumeName)
		case *corev1.Pod:
			want(&corev1.Node{}, o.Spec.NodeName)
		}
	}
	c.get(ctx, lookups...)
	for _, name := range []string{"leaderworkersets." + lwsv1.GroupVersion.Group, "podgroups." + gang.Kind.Group} {
		c.readDefinition(ctx, name)
	}
	for _, kind := range c.operator.kinds() {
		if mapping, err := c.Live.RESTMapper().RESTMapping(kind.GroupKind(), kind.Version); err == nil {
			c.readDefinition(ctx, mapping.Resource.Resource+"."+kind.Group)
		}
	}
}

// lookup is an object to read by its name.
type lookup struct {
	client.Object
	namespace, name string
	err             error
}

// readsAtOnce bounds the reads that run at the same time.
const readsAtOnce = 16

// get reads objects by name, and keeps those that exist.
func (c *collector) get(ctx context.Context, lookups ...*lookup) {
	workqueue.ParallelizeUntil(ctx, readsAtOnce, len(lookups), func(i int) {
		l := lookups[i]
		l.err = c.Live.Get(ctx, client.ObjectKey{Namespace: l.namespace, Name: l.name}, l.Object)
	})
	for _, l := range lookups {
		if l.err == nil && l.GetName() == "" { // the time was up before its turn
			l.err = ctx.Err()
		}
		c.miss(c.kindOf(l.Object), unlessAbsent(l.err))
		if l.err == nil {
			c.objects = append(c.objects, l.Object)
		}
	}
}

// readDefinition reads a CustomResourceDefinition. What is kept is made of names alone: a replay serves the kind, and
// neither validates nor defaults it.
func (c *collector) readDefinition(ctx context.Context, name string) {
	found := &unstructured.Unstructured{}
	found.SetAPIVersion("apiextensions.k8s.io/v1")
	found.SetKind("CustomResourceDefinition")
	err := c.Live.Get(ctx, client.ObjectKey{Name: name}, found)
	c.miss("the definition of "+name, unlessAbsent(err))
	if err != nil {
		return
	}
	c.definitions = append(c.definitions, definitionOf(found))
}

const mostEvents = 2000

// readEvents keeps the newest events of the kept objects.
func (c *collector) readEvents(ctx context.Context) {
	names := map[string]bool{}
	for _, object := range c.objects {
		names[object.GetName()] = true
	}
	for _, object := range c.list(ctx, &corev1.EventList{}) {
		if event := object.(*corev1.Event); names[event.InvolvedObject.Name] {
			c.events = append(c.events, *event)
		}
	}
	slices.SortStableFunc(c.events, func(a, b corev1.Event) int { return eventTime(a).Compare(eventTime(b)) })
	c.events = c.events[max(0, len(c.events)-mostEvents):]
	for i := range c.events {
		c.objects = append(c.objects, &c.events[i])
	}
}

func eventTime(e corev1.Event) time.Time {
	for _, at := range []time.Time{e.LastTimestamp.Time, e.EventTime.Time} {
		if !at.IsZero() {
			return at
		}
	}
	return e.CreationTimestamp.Time
}

// survey answers status and plan for each set, and why for each PVC.
func (c *collector) survey(ctx context.Context) {
	c.surveySets(ctx)
	var claims []corev1.PersistentVolumeClaim
	for _, object := range c.objects {
		if claim, ok := object.(*corev1.PersistentVolumeClaim); ok {
			claims = append(claims, *claim)
		}
	}
	reader := &clipvc.Reader{Client: c.Live, Now: c.moment}
	explained, err := reader.Explain(ctx, c.Namespace, claims)
	c.miss("why PVCs are in use", err)
	for _, found := range explained {
		c.see("why/"+found.Claim.Name+".txt", render.Claim(found))
	}
}

func (c *collector) surveySets(ctx context.Context) {
	if len(c.sets) == 0 {
		return
	}
	session, err := clilws.Open(ctx, c.Config, c.Namespace, c.Warn)
	if err != nil {
		c.miss("status and plan", err)
		return
	}
	for _, set := range c.sets {
		found, err := session.Set(ctx, client.ObjectKeyFromObject(set), c.moment)
		c.miss("status and plan of "+set.Name, err)
		if err == nil {
			if wanted := lws.WantedLeaders(found.Set); wanted != nil {
				c.wanted = append(c.wanted, wanted)
			}
			c.see(set.Name+"/status.txt", render.Status(found))
			c.see(set.Name+"/plan.txt", render.Plan(found))
		}
	}
}

func (c *collector) see(name string, r render.Report) {
	c.seen = append(c.seen, file{"seen/" + name, []byte(render.Text(r, c.moment))})
}

// bundle redacts and packs all that was read.
func (c *collector) bundle() (*Bundle, error) {
	c.redactor.Learn(c.objects, c.wanted...)
	var files []file
	for _, f := range c.seen {
		files = append(files, file{f.name, []byte(c.redactor.Text(string(f.content)))})
	}
	objects, err := c.objectFiles()
	if err != nil {
		return nil, err
	}
	files = append(files, objects...)
	for _, f := range c.logs { // named as the redacted pod is
		dir, base := path.Split(f.name)
		pod, extension, _ := strings.Cut(base, ".")
		files = append(files, file{dir + c.redactor.Text(pod) + "." + extension, []byte(c.redactor.Text(string(f.content)))})
	}
	return pack(files, c.moment, func(left []string) string { return c.page(left) })
}

// objectFiles are the redacted objects, each in a file: objects/RESOURCE.GROUP/NAMESPACE/NAME.json.
func (c *collector) objectFiles() (files []file, err error) {
	redacted := slices.Clone(c.definitions)
	for _, object := range c.objects {
		kind, err := c.Live.GroupVersionKindFor(object)
		if err != nil {
			return nil, err
		}
		copied := c.redactor.Object(object)
		copied.SetGroupVersionKind(kind)
		redacted = append(redacted, copied)
	}
	for _, object := range redacted {
		kind := object.GroupVersionKind()
		mapping, err := c.Live.RESTMapper().RESTMapping(kind.GroupKind(), kind.Version)
		if err != nil {
			return nil, err
		}
		text, err := json.Marshal(object)
		if err != nil {
			return nil, err
		}
		at := path.Join("objects", mapping.Resource.GroupResource().String(), object.GetNamespace(), object.GetName()+".json")
		files = append(files, file{at, text})
	}
	return files, nil
}

// configurationIn is the operator's configuration in a ConfigMap.
func configurationIn(found *corev1.ConfigMap) (*v1alpha1.Configuration, error) {
	parsed := &v1alpha1.Configuration{}
	err := yaml.Unmarshal([]byte(found.Data[v1alpha1.InstalledKey]), parsed)
	return parsed, err
}
