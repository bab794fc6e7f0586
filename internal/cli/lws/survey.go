// Package lws is what kubectl lockstep does with LeaderWorkerSets: read one with its plan, read a
// manifest, and change one.
//
// It reads through the operator's lwscache and decides with the operator's functions, with the user's
// credentials. Writes are patches of sets and of leaders, or dry runs. It knows no flags, and not how results are shown.
package lws

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	dsv1 "lockstep.dev/lockstep/api/disaggregatedset/v1"
	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/condition"
	"lockstep.dev/lockstep/internal/gang"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lease"
	"lockstep.dev/lockstep/internal/lws"
	lwsset "lockstep.dev/lockstep/internal/lws/set"
	"lockstep.dev/lockstep/internal/lws/workload"
	"lockstep.dev/lockstep/internal/lwscache"
	reconcilelws "lockstep.dev/lockstep/internal/reconcile/lws"
)

// Survey is a set and those of its groups that have an object, with the plan for each. Its objects
// belong to a cache and must not be changed.
type Survey struct {
	Set      lws.SetSnapshot
	Plan     lws.Plan
	Standing lws.Standing
	// Groups are ordered by rising index.
	Groups []Group
	// Refusals are read if a group is not ready.
	Refusals Refusals
	// Unattended is why no operator acts on the set; nil while one does, or where the user may not see it.
	Unattended *action.Reason
}

// Group is one group of a survey.
type Group struct {
	lws.GroupSnapshot
	Plan lws.Plan
}

// Set surveys a set. The error is NotFound if there is none.
func (s *Session) Set(ctx context.Context, key types.NamespacedName, now time.Time) (Survey, error) {
	found, err := s.read(ctx, s.Cached, key, now)
	if err == nil {
		found.Refusals = s.refusals(ctx, found)
		found.Unattended = s.unattended(ctx, found.Set.Set, s.isAbandoned(ctx, now), now)
	}
	return found, err
}

// As surveys a set as if it were stored as given.
func (s *Session) As(ctx context.Context, set *lwsv1.LeaderWorkerSet, now time.Time) (Survey, error) {
	found, err := s.read(ctx, overlay{Reader: s.Cached, set: set}, client.ObjectKeyFromObject(set), now)
	found.Unattended = s.unattended(ctx, set, s.isAbandoned(ctx, now), now)
	return found, err
}

// read reads a set and its groups, and decides.
func (s *Session) read(ctx context.Context, cached client.Reader, key types.NamespacedName, now time.Time) (Survey, error) {
	found, observer, err := readSet(ctx, cached, s.Live, key, now)
	if err != nil {
		return found, err
	}
	told := toldUnsupported(found.Set.Set)
	leaders, err := leaders(ctx, observer, found.Set)
	if err != nil {
		return found, err
	}
	for _, leader := range leaders {
		var g Group
		g.GroupSnapshot, err = observer.Group(ctx, types.NamespacedName{Namespace: key.Namespace, Name: leader}, now)
		if err == nil && g.Set != nil {
			recall(&g.Vigil, g.Set, now)
			g.Plan, err = reconcilelws.PlanGroup(ctx, observer, &g.GroupSnapshot)
		}
		switch {
		case apierrors.IsNotFound(err):
			continue // the group went after it was listed
		case apierrors.IsForbidden(err):
			g.Plan = lws.Plan{}
			g.Plan.Await(time.Time{}, CodeNotAllowed, fmt.Sprintf("the plan of the group cannot be read: %v", err))
		case err != nil:
			return found, err
		case g.Set == nil: // it went after it was read
			return found, apierrors.NewNotFound(schema.GroupResource{Group: lwsv1.GroupVersion.Group, Resource: "leaderworkersets"}, key.Name)
		}
		if told != nil {
			g.Plan = *told
		}
		found.Groups = append(found.Groups, g)
	}
	return found, nil
}

// readSet reads a set, and decides about it without its groups. The observer reads these.
func readSet(ctx context.Context, cached, live client.Reader, key types.NamespacedName, now time.Time) (found Survey, _ *lwscache.Observer, err error) {
	memory := lwscache.NewMemory()
	observer := lwscache.New(cached, live, memory)
	set := &lwsv1.LeaderWorkerSet{}
	if err := cached.Get(ctx, key, set); err != nil {
		return found, nil, err
	}
	observer.Scheduler, observer.ProgressDeadline = schedulerOf(set), deadlineOf(set)
	if condition.IsTrue(set.Status.Conditions, lws.CodeNameConflict) { // the cache shows no Service without the labels of the set
		memory.Taken(identity.Ref{Kind: identity.KindService, Namespace: key.Namespace, Name: key.Name})
	}
	if found.Set, err = observer.Set(ctx, key, now); err != nil {
		return found, nil, err
	}
	recall(&found.Set.Vigil, found.Set.Set, now)
	if found.Plan, err = reconcilelws.PlanSet(ctx, observer, &found.Set); err != nil {
		return found, nil, err
	}
	found.Standing = standingOf(found.Set, found.Plan)
	if told := toldUnsupported(found.Set.Set); told != nil {
		found.Plan, found.Standing.Conditions = *told, found.Set.Set.Status.Conditions
	}
	return found, observer, nil
}

// schedulerOf returns the scheduler that places a set with spec.scheduling, or nothing. The configuration of the
// operator says so, and the status of the set shows it.
func schedulerOf(set *lwsv1.LeaderWorkerSet) string {
	_, isNative := condition.Of(set.Status.Conditions, string(lwsv1.LeaderWorkerSetWorkloadSchedulingCreated))
	switch {
	case set.Spec.Scheduling == nil || condition.IsTrue(set.Status.Conditions, lws.CodeUnsupported):
		return ""
	case isNative || len(set.Status.Conditions) == 0:
		return gang.Kubernetes
	}
	return gang.Volcano
}

// deadlineOf returns a deadline for a set without the annotation: that of the configuration is over if the status says so.
func deadlineOf(set *lwsv1.LeaderWorkerSet) (d time.Duration) {
	if stalled, _ := condition.Of(set.Status.Conditions, string(lwsv1.LeaderWorkerSetStalled)); stalled.Reason == lws.CodeProgressDeadlineExceeded {
		d = time.Nanosecond
	}
	return d
}

// toldUnsupported returns what the operator says of a set that it leaves alone, as a plan that waits, or nil: a user need
// not be allowed to read the definition.
func toldUnsupported(set *lwsv1.LeaderWorkerSet) (told *lws.Plan) {
	if said, _ := condition.Of(set.Status.Conditions, lws.CodeUnsupported); said.Status == metav1.ConditionTrue {
		told = &lws.Plan{Plan: action.Plan{Waits: []lws.Wait{{Reason: action.Because(lws.CodeUnsupported, said.Message)}}}}
	}
	return told
}

// CodeNotAllowed is the wait of a group whose plan needs objects that the user may not read, as the
// nodes of exclusive placement.
const CodeNotAllowed = "NotAllowedToSee"

// stuckFor is the least age of objects that the status calls stuck.
const stuckFor = time.Minute

// recall adds what the operator has written into the status: that objects of the previous incarnation are stuck.
func recall(v *lws.Vigil, set *lwsv1.LeaderWorkerSet, now time.Time) {
	if !lws.ToldStuck(set) {
		return
	}
	for _, times := range []map[types.UID]time.Time{v.Seen, v.Gone} {
		for uid := range times {
			times[uid] = now.Add(-stuckFor)
		}
	}
	v.Moved = time.Time{}
}

// standingOf returns what a plan was decided from, counted: the plan of a set that is being deleted counts nothing.
func standingOf(w lws.SetSnapshot, plan lws.Plan) lws.Standing {
	if plan.Standing != nil {
		return *plan.Standing
	}
	return lwsset.Stand(w)
}

// overlay reads a set that is not stored, and everything else from the cache.
type overlay struct {
	client.Reader
	set *lwsv1.LeaderWorkerSet
}

// Get implements client.Reader.
func (o overlay) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	if set, ok := into.(*lwsv1.LeaderWorkerSet); ok && key == client.ObjectKeyFromObject(o.set) {
		*set = *o.set
		return nil
	}
	return o.Reader.Get(ctx, key, into, options...)
}

// leaders returns the names of the leaders of groups that have objects, of any incarnation.
func leaders(ctx context.Context, observer *lwscache.Observer, w lws.SetSnapshot) (names []string, err error) {
	if workload.HasHashIdentity(w.Set) {
		for _, groups := range [][]lws.Group{w.Groups, w.Vacant} {
			for i := range groups {
				names = append(names, groups[i].LeaderName)
			}
		}
		return names, nil
	}
	indices, err := indices(ctx, observer, w)
	for _, index := range indices {
		names = append(names, identity.LeaderName(w.Set.Name, index))
	}
	return names, err
}

// indices returns, in rising order, the indices of groups whose names objects have, of any incarnation, and of those
// that the status says have failed.
func indices(ctx context.Context, observer *lwscache.Observer, w lws.SetSnapshot) ([]int, error) {
	found, err := observer.GroupsWithObjects(ctx, client.ObjectKeyFromObject(w.Set))
	for _, pod := range slices.Concat(w.Leaders.Owned, w.Leaders.Previous, w.Leaders.Orphans, w.Leaders.Foreign) {
		found = append(found, identity.Ordinal(pod.Name))
	}
	for _, failed := range w.Set.Status.Restarts {
		found = append(found, int(failed.Index))
	}
	slices.Sort(found)
	return slices.Compact(found), err
}

// Refusals are the FailedCreate events of a namespace, the newest first. Only the StatefulSet
// controller's event says why a pod is missing.
type Refusals []corev1.Event

// OfPod returns why a pod of a StatefulSet could not be created, or is empty.
func (r Refusals) OfPod(sts *appsv1.StatefulSet, pod string) string {
	for _, e := range r {
		if sts != nil && e.InvolvedObject.UID == sts.UID && strings.Contains(e.Message, "Pod "+pod+" in StatefulSet ") {
			return e.Message
		}
	}
	return ""
}

// refusals reads the events if a group is not ready. A user who may not list events sees no reasons.
func (s *Session) refusals(ctx context.Context, found Survey) Refusals {
	set := found.Set.Set
	if set.DeletionTimestamp != nil || found.Standing.Ready >= workload.Replicas(set) {
		return nil
	}
	var events corev1.EventList
	if err := s.Live.List(ctx, &events, client.InNamespace(set.Namespace), client.MatchingFields{"reason": "FailedCreate"}); err != nil {
		return nil
	}
	slices.SortFunc(events.Items, func(a, b corev1.Event) int { return b.LastTimestamp.Compare(a.LastTimestamp.Time) })
	return events.Items
}

const (
	// patience is how long the first lists may take without --request-timeout.
	patience = 30 * time.Second
	// beat is how often a session is read again.
	beat = time.Second
)

// Session reads one namespace, or all, for as long as its context lasts.
type Session struct {
	// Cached must have lwscache.CacheOptions and lwscache.Index. Live reads from the API server.
	Cached, Live client.Reader
	// Lease is the lease that an operator of sets holds. Without a name, the operator is not judged.
	Lease types.NamespacedName

	namespace string // empty for all
	ctx       context.Context
}

// Scheme returns the types that the commands read.
func Scheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, lwsv1.AddToScheme, dsv1.AddToScheme} {
		if err := add(scheme); err != nil {
			panic(err) // the types are compiled in
		}
	}
	return scheme
}

// Open starts to read a namespace, or all without a name, and returns when the cache is synced. Nothing can be written
// through a session. It ends with ctx, or when the API server refuses a list or watch. Other errors of watches are
// printed to warn.
func Open(ctx context.Context, config *rest.Config, namespace string, warn io.Writer) (s *Session, err error) {
	ctx, fail := context.WithCancelCause(ctx)
	defer func() {
		if err != nil {
			fail(err)
		}
	}()
	config = rest.CopyConfig(config)
	limit := cmp.Or(max(config.Timeout, 0), patience)
	config.Timeout = 0 // of a watch
	options := lwscache.CacheOptions()
	options.Scheme = Scheme()
	if namespace != "" {
		options.DefaultNamespaces = map[string]cache.Config{namespace: {}}
	}
	options.DefaultWatchErrorHandler = func(_ context.Context, _ *toolscache.Reflector, err error) {
		if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
			fail(err)
			return
		}
		fmt.Fprintf(warn, "what is shown may be old, trying again: %v\n", err)
	}
	cached, err := cache.New(config, options)
	if err != nil {
		return nil, err
	}
	live, err := client.New(config, client.Options{Scheme: Scheme()})
	if err != nil {
		return nil, err
	}
	s = &Session{Cached: cached, Live: live, namespace: namespace, ctx: ctx}
	if err := s.follow(cached); err != nil {
		return nil, err
	}
	go func() {
		if err := cached.Start(ctx); err != nil {
			fail(err)
		}
	}()
	return s, s.sync(cached, limit)
}

// follow starts informers for everything that a survey reads.
func (s *Session) follow(cached cache.Cache) error {
	if err := lwscache.Index(s.ctx, cached); err != nil {
		return err
	}
	for object := range lwscache.CacheOptions().ByObject {
		if _, err := cached.GetInformer(s.ctx, object, cache.BlockUntilSynced(false)); err != nil {
			return err
		}
	}
	return nil
}

// sync returns when the cache is synced.
func (s *Session) sync(cached cache.Cache, limit time.Duration) error {
	waiting, done := context.WithTimeout(s.ctx, limit)
	defer done()
	switch {
	case cached.WaitForCacheSync(waiting):
		return nil
	case s.ctx.Err() != nil:
		return context.Cause(s.ctx)
	}
	return fmt.Errorf("the API server has not listed all objects within %s; allow more with --request-timeout", limit)
}

// Await returns when it is time to read again. The error says why the session ended.
func (s *Session) Await() error {
	select {
	case <-s.ctx.Done():
		return context.Cause(s.ctx)
	case <-time.After(beat):
		return nil
	}
}

// Codes of why no operator acts on a set. They are stable.
const (
	CodeNoOperator  = "NoOperator"
	CodeNotObserved = "NotObserved"
)

// observedWithin is how soon an operator that is well observes a new spec.
const observedWithin = 30 * time.Second

// isAbandoned reports whether no operator holds the lease. It is unknown where the lease cannot be read, or an operator
// has none.
func (s *Session) isAbandoned(ctx context.Context, now time.Time) bool {
	found := &coordinationv1.Lease{}
	return s.Lease.Name != "" && s.Live.Get(ctx, s.Lease, found) == nil && !lease.IsHeld(found, now)
}

func (s *Session) noOperator() *action.Reason {
	return reasonf(CodeNoOperator, "no operator holds lease %s in namespace %s, so what is shown may be old; see: kubectl -n %[2]s get pods",
		s.Lease.Name, s.Lease.Namespace)
}

// unattended returns why no operator acts on a set, or nil: none acts on any set, or its spec was not observed.
func (s *Session) unattended(ctx context.Context, set *lwsv1.LeaderWorkerSet, isAbandoned bool, now time.Time) *action.Reason {
	return s.unobserved(ctx, set, set.Status.ObservedGeneration, isAbandoned, now)
}

func (s *Session) unobserved(ctx context.Context, set client.Object, observed int64, isAbandoned bool, now time.Time) *action.Reason {
	switch {
	case isAbandoned:
		return s.noOperator()
	case s.Lease.Name == "" || observed >= set.GetGeneration() || now.Sub(set.GetCreationTimestamp().Time) < observedWithin:
		return nil
	}
	stored := set.DeepCopyObject().(client.Object) // the cache may be late
	if err := s.Live.Get(ctx, client.ObjectKeyFromObject(set), stored); err != nil || stored.GetGeneration() != set.GetGeneration() {
		return nil
	}
	if written := workload.SpecWritten(stored); !written.IsZero() && now.Sub(written) >= observedWithin {
		return reasonf(CodeNotObserved, "the operator has not observed generation %d, which was written at %s; see its log in namespace %s",
			set.GetGeneration(), written.UTC().Format(time.RFC3339), s.Lease.Namespace)
	}
	return nil
}

func reasonf(code, format string, args ...any) *action.Reason {
	return &action.Reason{Code: code, Sentence: fmt.Sprintf(format, args...)}
}
