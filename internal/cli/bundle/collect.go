// Package bundle collects what a report of a problem needs, redacts it and packs it into one archive.
//
// It reads live with the user's credentials. What cannot be read is a line of the report. The objects suffice to
// let plan and why answer again elsewhere: lockstep-local up --from. The package knows no flags.
package bundle

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	_ "embed" // the definition
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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	kubeversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/pager"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	dsv1 "lockstep.dev/lockstep/api/disaggregatedset/v1"
	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/cli/disaggregated"
	clilws "lockstep.dev/lockstep/internal/cli/lws"
	"lockstep.dev/lockstep/internal/cli/page"
	clipvc "lockstep.dev/lockstep/internal/cli/pvc"
	"lockstep.dev/lockstep/internal/cli/redact"
	"lockstep.dev/lockstep/internal/cli/render"
	"lockstep.dev/lockstep/internal/gang"
	lwsleaders "lockstep.dev/lockstep/internal/lws/leaders"
	"lockstep.dev/lockstep/internal/pvc/workloads"
)

const (
	// readWithin is how long all reads may take together. What is read later is missing.
	readWithin = 7 * time.Second
	// readsAtOnce bounds the reads that run at the same time.
	readsAtOnce = 16
	// mostEvents are kept, the newest.
	mostEvents = 2000
)

// Request is what a report is about.
type Request struct {
	Config *rest.Config
	Live   client.Client
	// Namespace is that of the sets. Names are theirs; none means all sets and PVCs of the namespace.
	Namespace string
	Names     []string
	// Noun is the kind of the sets that are named.
	Noun string
	// Command is what the user typed.
	Command string
	// Now is the clock.
	Now func() time.Time
	// Warn receives what a watch complains about.
	Warn io.Writer
}

// Collect reads, redacts and packs a report. The error is NotFound if a named set does not exist.
func Collect(ctx context.Context, request Request) (io.WriterTo, error) {
	reading, done := context.WithTimeout(ctx, readWithin)
	defer done()
	kube, err := kubernetes.NewForConfig(request.Config)
	if err != nil {
		return nil, err
	}
	c := &collector{Request: request, kube: kube, redactor: redact.New()}
	if err := c.readSets(reading); err != nil {
		return nil, err
	}
	c.readObjects(reading)
	c.readOperator(reading)
	c.moment = c.Now()
	c.surveySets(reading)
	c.surveyWholes(reading)
	c.surveyClaims(reading)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return c.bundle()
}

// collector is a report in the making.
type collector struct {
	Request
	kube     kubernetes.Interface
	redactor *redact.Redactor
	server   *kubeversion.Info
	moment   time.Time
	sets     []*lwsv1.LeaderWorkerSet
	wholes   []*dsv1.DisaggregatedSet
	// objects are all that the report has, events and deployments those among them, and kinds those of protection.
	objects     []client.Object
	events      []*corev1.Event
	deployments []*appsv1.Deployment
	kinds       []workloads.Kind
	// namespaces are where operators may run.
	namespaces []string
	// seen are outputs of commands, by file, and wanted the StatefulSets that the plans compare with.
	seen, logs []file
	wanted     []*appsv1.StatefulSet
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
	for _, name := range c.Names {
		if err := c.readSet(ctx, client.ObjectKey{Namespace: c.Namespace, Name: name}); err != nil {
			return err
		}
	}
	if len(c.Names) == 0 {
		list := &lwsv1.LeaderWorkerSetList{}
		if err := c.Live.List(ctx, list, client.InNamespace(c.Namespace)); unlessAbsent(err) != nil {
			return err
		}
		for i := range list.Items {
			c.sets = append(c.sets, &list.Items[i])
		}
		for _, whole := range c.list(ctx, &dsv1.DisaggregatedSetList{}) {
			c.wholes = append(c.wholes, whole.(*dsv1.DisaggregatedSet))
		}
	}
	for _, set := range c.sets {
		c.objects = append(c.objects, set)
	}
	for _, whole := range c.wholes {
		c.objects = append(c.objects, whole)
	}
	return nil
}

// readSet reads a set that is named, and the LeaderWorkerSets of a DisaggregatedSet.
func (c *collector) readSet(ctx context.Context, key client.ObjectKey) error {
	if c.Noun != disaggregated.Noun {
		set := &lwsv1.LeaderWorkerSet{}
		c.sets = append(c.sets, set)
		return c.Live.Get(ctx, key, set)
	}
	for _, part := range c.list(ctx, &lwsv1.LeaderWorkerSetList{}, client.MatchingLabels{dsv1.SetNameLabelKey: key.Name}) {
		c.sets = append(c.sets, part.(*lwsv1.LeaderWorkerSet))
	}
	whole := &dsv1.DisaggregatedSet{}
	c.wholes = append(c.wholes, whole)
	return c.Live.Get(ctx, key, whole)
}

// readObjects reads what belongs to the sets, what uses their PVCs, and what plans and explanations read besides.
func (c *collector) readObjects(ctx context.Context) {
	version, err := c.kube.Discovery().ServerVersionWithContext(ctx)
	c.miss("the version of Kubernetes", err)
	c.server = version
	s := newSelection(c.objects, len(c.Names) == 0)
	for _, list := range []client.ObjectList{
		&dsv1.DisaggregatedSetRoleScalerList{}, &corev1.PodList{}, &appsv1.ControllerRevisionList{}, &corev1.ServiceList{}, &corev1.PersistentVolumeClaimList{},
		untypedList(gang.Kind), untypedList(gang.WorkloadKind), untypedList(gang.NativePodGroupKind),
	} {
		s.add(c.list(ctx, list), nil)
	}
	for _, list := range []client.ObjectList{
		&appsv1.StatefulSetList{}, &appsv1.DeploymentList{}, &appsv1.ReplicaSetList{}, &appsv1.DaemonSetList{},
		&batchv1.JobList{}, &batchv1.CronJobList{},
	} {
		s.add(c.list(ctx, list), workloads.BuiltIn)
	}
	c.readConfigurations(ctx)
	for _, kind := range c.kinds {
		s.add(c.list(ctx, untypedList(kind.GroupVersionKind)), kind.Of)
	}
	isRead := func(object client.Object) bool {
		return slices.ContainsFunc(c.objects, func(known client.Object) bool { return known.GetUID() == object.GetUID() })
	}
	c.objects = append(c.objects, slices.DeleteFunc(s.kept(c.Namespace), isRead)...)
	c.readCluster(ctx)
	c.readEvents(ctx)
}

func untypedList(kind schema.GroupVersionKind) client.ObjectList {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	return list
}

// list reads all objects of a kind, page by page, in the namespace unless the options say otherwise.
func (c *collector) list(ctx context.Context, list client.ObjectList, more ...client.ListOption) (all []client.Object) {
	options := (&client.ListOptions{Namespace: c.Namespace}).ApplyOptions(more)
	pages := pager.New(func(ctx context.Context, next metav1.ListOptions) (runtime.Object, error) {
		options.Limit, options.Continue = next.Limit, next.Continue
		page := list.DeepCopyObject().(client.ObjectList)
		return page, c.Live.List(ctx, page, options)
	})
	err := pages.EachListItem(ctx, metav1.ListOptions{}, func(object runtime.Object) error {
		all = append(all, object.(client.Object))
		return nil
	})
	c.miss(c.kindOf(list), unlessAbsent(err))
	return all
}

// kindOf names the kind of an object or a list.
func (c *collector) kindOf(object runtime.Object) string {
	kind, _ := c.Live.GroupVersionKindFor(object) // the types are compiled in
	return strings.TrimSuffix(kind.Kind, "List") + "s"
}

// readCluster reads the namespace, and the PersistentVolumes and nodes of what is kept.
func (c *collector) readCluster(ctx context.Context) {
	volumes, nodes := sets.New(""), sets.New("")
	for _, object := range c.objects {
		switch o := object.(type) {
		case *corev1.PersistentVolumeClaim:
			volumes.Insert(o.Spec.VolumeName)
		case *corev1.Pod:
			nodes.Insert(o.Spec.NodeName)
		}
	}
	wanted := []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.Namespace}}}
	for name := range volumes.Delete("") {
		wanted = append(wanted, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	for name := range nodes.Delete("") {
		wanted = append(wanted, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	c.get(ctx, wanted...)
}

// get reads objects by their names, and keeps those that exist.
func (c *collector) get(ctx context.Context, objects ...client.Object) {
	errs := slices.Repeat([]error{context.DeadlineExceeded}, len(objects)) // of those whose turn does not come
	workqueue.ParallelizeUntil(ctx, readsAtOnce, len(objects), func(i int) {
		errs[i] = c.Live.Get(ctx, client.ObjectKeyFromObject(objects[i]), objects[i])
	})
	for i, object := range objects {
		c.miss(c.kindOf(object), unlessAbsent(errs[i]))
		if errs[i] == nil {
			c.objects = append(c.objects, object)
		}
	}
}

// readEvents keeps the newest events of the kept objects.
func (c *collector) readEvents(ctx context.Context) {
	names := sets.New[string]()
	for _, object := range c.objects {
		names.Insert(object.GetName())
	}
	for _, object := range c.list(ctx, &corev1.EventList{}) {
		if event := object.(*corev1.Event); names.Has(event.InvolvedObject.Name) {
			c.events = append(c.events, event)
		}
	}
	slices.SortStableFunc(c.events, func(a, b *corev1.Event) int { return eventTime(a).Compare(eventTime(b)) })
	c.events = c.events[max(0, len(c.events)-mostEvents):]
	for _, event := range c.events {
		c.objects = append(c.objects, event)
	}
}

func eventTime(e *corev1.Event) time.Time {
	return cmp.Or(e.LastTimestamp.Time, e.EventTime.Time, e.CreationTimestamp.Time)
}

// surveySets answers status and plan for each set.
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
		if err != nil {
			c.miss("status and plan of "+set.Name, err)
			continue
		}
		if wanted := lwsleaders.WantedLeaders(found.Set); wanted != nil {
			c.wanted = append(c.wanted, wanted)
		}
		c.see(set.Name+"/status.txt", render.Status(found))
		c.see(set.Name+"/plan.txt", render.Plan(found))
	}
}

// surveyWholes answers status and plan for each DisaggregatedSet.
func (c *collector) surveyWholes(ctx context.Context) {
	for _, whole := range c.wholes {
		status, plan, err := disaggregated.Answers(ctx, c.Live, client.ObjectKeyFromObject(whole), c.moment)
		c.miss("status and plan of dset/"+whole.Name, err)
		if err == nil {
			c.see("dset/"+whole.Name+"/status.txt", status)
			c.see("dset/"+whole.Name+"/plan.txt", plan)
		}
	}
}

// surveyClaims answers why for each PVC.
func (c *collector) surveyClaims(ctx context.Context) {
	var claims []corev1.PersistentVolumeClaim
	for _, object := range c.objects {
		if claim, ok := object.(*corev1.PersistentVolumeClaim); ok {
			claims = append(claims, *claim)
		}
	}
	explained, err := (&clipvc.Reader{Client: c.Live, Now: c.moment}).Explain(ctx, c.Namespace, claims)
	c.miss("why PVCs are in use", err)
	for _, found := range explained {
		c.see("why/"+found.Claim.Name+".txt", render.Claim(found))
	}
}

func (c *collector) see(name string, r page.Report) {
	c.seen = append(c.seen, file{"seen/" + name, []byte(page.Text(r, c.moment))})
}

// bundle redacts and packs all that was read.
func (c *collector) bundle() (io.WriterTo, error) {
	c.redactor.Learn(c.objects, c.wanted...)
	objects := c.definitions()
	for _, object := range c.objects {
		kind, _ := c.Live.GroupVersionKindFor(object) // the types are compiled in
		redacted := c.redactor.Object(object)
		redacted.SetGroupVersionKind(kind)
		objects = append(objects, redacted)
	}
	var stored []file // objects/RESOURCE.GROUP/NAMESPACE/NAME.json
	for _, object := range objects {
		kind := object.GroupVersionKind()
		mapping, err := c.Live.RESTMapper().RESTMapping(kind.GroupKind(), kind.Version)
		if err != nil {
			return nil, err
		}
		text, _ := json.Marshal(object) // it was decoded from JSON
		resource := mapping.Resource.GroupResource().String()
		stored = append(stored, file{path.Join("objects", resource, object.GetNamespace(), object.GetName()+".json"), text})
	}
	return pack(slices.Concat(c.redacted(c.seen), stored, c.redacted(c.logs)), c.moment, mostBytes, c.page)
}

// redacted redacts texts. The file of a pod is named as the redacted pod is.
func (c *collector) redacted(texts []file) (files []file) {
	for _, f := range texts {
		files = append(files, file{c.redactor.Text(f.name), []byte(c.redactor.Text(string(f.content)))})
	}
	return files
}

// definitions are those of the kinds that a replay must serve. Kinds of Kubernetes have none.
func (c *collector) definitions() (all []*unstructured.Unstructured) {
	kinds := []schema.GroupVersionKind{
		lwsv1.GroupVersion.WithKind("LeaderWorkerSet"), dsv1.GroupVersion.WithKind("DisaggregatedSetRoleScaler"), gang.Kind,
	}
	for _, kind := range c.kinds {
		kinds = append(kinds, kind.GroupVersionKind)
	}
	for _, kind := range kinds {
		mapping, err := c.Live.RESTMapper().RESTMapping(kind.GroupKind(), kind.Version)
		c.miss("the definition of "+kind.Kind, unlessAbsent(err))
		if err == nil && !clientgoscheme.Scheme.IsGroupRegistered(kind.Group) {
			all = append(all, definitionOf(mapping, c.moment))
		}
	}
	return all
}

//go:embed definition.yaml
var definitionText string

// definitionOf makes the CustomResourceDefinition of a served kind.
func definitionOf(kind *meta.RESTMapping, moment time.Time) *unstructured.Unstructured {
	of, scope := kind.GroupVersionKind, "Cluster"
	if kind.Scope.Name() == meta.RESTScopeNameNamespace {
		scope = "Namespaced"
	}
	text := fmt.Sprintf(definitionText, kind.Resource.GroupResource().String(), of.Group, scope, kind.Resource.Resource,
		strings.ToLower(of.Kind), of.Kind, of.Version, moment.UTC().Format(time.RFC3339))
	made := &unstructured.Unstructured{}
	_ = yaml.Unmarshal([]byte(text), made) // the text is quoted
	return made
}

const (
	// mostBytes is how large an archive may be, but for the report itself. What does not fit is named there.
	mostBytes = 18 << 20

	pageName = "report.md"
	// momentName says when the objects were as the bundle has them.
	momentName = "moment.json"
)

// file is one file of the archive.
type file struct {
	name    string
	content []byte
}

// pack packs files in their order while they fit, and a page that names what did not. What is not compressed yet must
// fit as it is.
func pack(files []file, moment time.Time, most int, page func(left []string) string) (*bytes.Buffer, error) {
	packed, left := &bytes.Buffer{}, []string(nil)
	compressed := gzip.NewWriter(packed)
	archive := tar.NewWriter(compressed)
	add := func(f file) error {
		head := &tar.Header{Name: f.name, Mode: 0o644, Size: int64(len(f.content)), ModTime: moment.UTC().Truncate(time.Second)}
		if err := archive.WriteHeader(head); err != nil {
			return err
		}
		_, err := archive.Write(f.content)
		return errors.Join(err, archive.Flush(), compressed.Flush()) // so that the size is known
	}
	for _, f := range files {
		if packed.Len()+len(f.content) > most {
			left = append(left, fmt.Sprintf("%s: it does not fit, with %d bytes", f.name, len(f.content)))
			continue
		}
		if err := add(f); err != nil {
			return nil, err
		}
	}
	when, err := json.Marshal(map[string]time.Time{"at": moment.UTC()})
	err = errors.Join(err, add(file{momentName, when}), add(file{pageName, []byte(page(left))}))
	return packed, errors.Join(err, archive.Close(), compressed.Close())
}
