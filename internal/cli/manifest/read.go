package manifest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	strictjson "sigs.k8s.io/json"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws/admission"
	"lockstep.dev/lockstep/internal/quantity"
)

var setQuantities = quantity.In[lwsv1.LeaderWorkerSet]()

// Set is a LeaderWorkerSet as it stands in a file.
type Set struct {
	// Where says which file, and where in it.
	Where string
	// Set has the defaults of the schema.
	Set *lwsv1.LeaderWorkerSet
	// said is what the file says, and no default.
	said map[string]any
}

// Read returns the LeaderWorkerSets of a file, "-" being in. Those that name no
// namespace are in the given one. skipped names the objects of other kinds.
func Read(ctx context.Context, path string, in io.Reader, namespace string) (sets []Set, skipped []string, err error) {
	data, err := readFile(path, in)
	if err != nil {
		return nil, nil, err
	}
	all, err := documents(path, data)
	if err != nil {
		return nil, nil, err
	}
	for _, d := range all {
		if d.object.GroupVersionKind().GroupKind() != lwsv1.Kind("LeaderWorkerSet") {
			skipped = append(skipped, fmt.Sprintf("%s: %s", d.where, describe(d)))
			continue
		}
		said := d.object.DeepCopy().Object
		set, err := decode(ctx, d, namespace)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", d.where, err)
		}
		sets = append(sets, Set{Where: d.where, Set: set, said: said})
	}
	if len(sets) == 0 {
		return nil, nil, fmt.Errorf("%s holds no LeaderWorkerSet%s; expected apiVersion %s, kind LeaderWorkerSet", title(path), found(skipped), lwsv1.GroupVersion)
	}
	return sets, skipped, nil
}

func describe(d document) string {
	kind := d.object.GetKind()
	if kind == "" {
		return "an object without a kind"
	}
	return fmt.Sprintf("%s %q is not a LeaderWorkerSet", kind, d.object.GetName())
}

func found(skipped []string) string {
	if len(skipped) == 0 {
		return ""
	}
	return " (" + strings.Join(skipped[:min(len(skipped), 3)], "; ") + ")"
}

// decode reads a set strictly: a field that nobody reads is a mistake.
func decode(ctx context.Context, d document, namespace string) (*lwsv1.LeaderWorkerSet, error) {
	if version := d.object.GetAPIVersion(); version != lwsv1.GroupVersion.String() {
		return nil, fmt.Errorf("apiVersion %q is not served; write %s", version, lwsv1.GroupVersion)
	}
	g, err := openGate()
	if err != nil {
		return nil, err
	}
	set, mistakes := &lwsv1.LeaderWorkerSet{}, strictly(d.object.Object, &lwsv1.LeaderWorkerSet{})
	g.complete(d.object.Object)
	if err := strictly(d.object.Object, set); err != nil {
		if faults := g.judge(ctx, d.object.Object, nil); len(faults) > 0 {
			return nil, refused(d.object.GetName(), faults) // the schema says it in better words
		}
		return nil, err
	}
	if mistakes != nil {
		return nil, mistakes
	}
	if set.Name == "" {
		return nil, errors.New("metadata.name is missing: what is planned depends on it")
	}
	if set.Namespace == "" {
		set.Namespace = namespace
	}
	return set, nil
}

func strictly(tree map[string]any, into *lwsv1.LeaderWorkerSet) error {
	raw, err := json.Marshal(tree)
	if err != nil {
		return err
	}
	if err := setQuantities.Check(raw); err != nil {
		return err
	}
	mistakes, err := strictjson.UnmarshalStrict(raw, into)
	if err != nil {
		return fmt.Errorf("not a LeaderWorkerSet: %w", err)
	}
	if len(mistakes) == 0 {
		return nil
	}
	var text []string
	for _, mistake := range mistakes {
		text = append(text, mistake.Error())
	}
	return errors.New(strings.Join(text, "; "))
}

// Admitted is the set as the API server would store it now, over live, which is
// nil when there is none. The error has every fault with its path.
func (s Set) Admitted(ctx context.Context, live *lwsv1.LeaderWorkerSet, now time.Time) (set *lwsv1.LeaderWorkerSet, warnings []string, err error) {
	if live == nil {
		set = s.anew(now)
	} else if set, err = s.over(live); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", s.Where, err)
	}
	faults, err := judge(ctx, set, live)
	if err != nil {
		return nil, nil, err
	}
	if len(faults) > 0 {
		return nil, nil, fmt.Errorf("%s: %w", s.Where, refused(set.Name, faults))
	}
	return set, admission.Warnings(set, live), nil
}

// anew is the set as it is created.
func (s Set) anew(now time.Time) *lwsv1.LeaderWorkerSet {
	set := s.Set.DeepCopy()
	set.Status = lwsv1.LeaderWorkerSetStatus{}
	set.UID, set.ResourceVersion, set.Generation = "", "", 1
	set.CreationTimestamp = metav1.NewTime(now)
	set.OwnerReferences, set.DeletionTimestamp = nil, nil
	admission.Default(set)
	return set
}

// judge asks the schema first, as the API server does: admission looks at what
// has passed it.
func judge(ctx context.Context, set, live *lwsv1.LeaderWorkerSet) (field.ErrorList, error) {
	g, err := openGate()
	if err != nil {
		return nil, err
	}
	tree, err := treeOf(set)
	if err != nil {
		return nil, err
	}
	var old map[string]any
	if live != nil {
		if old, err = treeOf(live); err != nil {
			return nil, err
		}
	}
	if faults := g.judge(ctx, tree, old); len(faults) > 0 {
		return faults, nil
	}
	if live != nil {
		return admission.ValidateUpdate(set, live), nil
	}
	return admission.ValidateCreate(set), nil
}

func refused(name string, faults field.ErrorList) error {
	lines := []string{fmt.Sprintf("LeaderWorkerSet %q would be refused:", name)}
	for _, fault := range faults {
		lines = append(lines, "  "+fault.Error())
	}
	return errors.New(strings.Join(lines, "\n"))
}
