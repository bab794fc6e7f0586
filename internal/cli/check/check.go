// Package check is kubectl lockstep check: it finds out whether an installation is well, and before
// that whether one would go well.
//
// It knows what install would write, and compares it with what is there. It writes nothing: a set is
// created as a dry run, to see that the webhooks answer. What the user may not read is a warning that
// names the missing right, and never taken for absent.
package check

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/install"
	"lockstep.dev/lockstep/internal/operator"
)

// Result is what a check found.
type Result string

// The results, by rising severity.
const (
	OK      Result = "ok"
	Warning Result = "warning"
	Failure Result = "failure"
)

// Line is one finding.
type Line struct {
	Check   string `json:"check"`
	Result  Result `json:"result"`
	Message string `json:"message"`
	// Help is the page and the heading of the documentation about the check.
	Help string `json:"help"`
}

// Options say where and when to check.
type Options struct {
	// Client reads live.
	Client    client.Client
	Discovery discovery.DiscoveryInterface
	// TestNamespace is where a set is created as a dry run.
	TestNamespace string
	// Version is that of this program.
	Version string
	Now     time.Time
}

// site is a cluster, with what it should have.
type site struct {
	Options
	install.Expected
	// lacks are the kinds of policies that the API server does not serve.
	lacks []string
}

// rule is one check. Its error is a finding as well.
type rule struct {
	name  string
	check func(context.Context, *site, *findings) error
}

var installed = []rule{
	{"kubernetes", kubernetesVersion},
	{"features", features},
	{"configuration", configuration},
	{"definition", definitionHere},
	{"webhooks", webhooks},
	{"admission", admission},
	{"certificate", certificate},
	{"policies", policies},
	{"roles", roles},
	{"leader", leader},
	{"version", operatorVersion},
	{"leftovers", leftovers},
}

var before = []rule{
	{"kubernetes", kubernetesVersion},
	{"features", features},
	{"definition", definitionBefore},
	{"rights", rights},
	{"leftovers", othersBefore},
}

// Installed checks an installation.
func Installed(ctx context.Context, o Options) []Line {
	return o.run(ctx, func(s *site) (install.Expected, error) { return install.Expect(ctx, o.Client, s.lacks) }, installed)
}

// Before checks whether an installation would go well.
func Before(ctx context.Context, o Options) []Line {
	return o.run(ctx, func(s *site) (install.Expected, error) { return install.Plan(s.lacks) }, before)
}

func (o Options) run(ctx context.Context, expect func(*site) (install.Expected, error), rules []rule) []Line {
	s, f := &site{Options: o}, &findings{}
	var problem error
	if s.lacks, problem = operator.Lacks(o.Discovery); problem == nil {
		s.Expected, problem = expect(s)
	}
	if problem != nil {
		f.check = "configuration"
		f.take(problem)
		f.sayUnread()
		return f.lines
	}
	for _, r := range rules {
		f.check = r.name
		f.take(r.check(ctx, s, f))
		f.sayUnread()
	}
	return f.lines
}

// findings are the lines of the checks so far.
type findings struct {
	check string
	lines []Line
	// unread are the rights that the user lacks for the check at hand.
	unread []string
}

// page documents every check under a heading of its name.
const page = "docs/how-to/check-an-installation.md"

func (f *findings) add(result Result, format string, args ...any) {
	f.lines = append(f.lines, Line{f.check, result, fmt.Sprintf(format, args...), page + "#" + f.check})
}

func (f *findings) ok(format string, args ...any)   { f.add(OK, format, args...) }
func (f *findings) warn(format string, args ...any) { f.add(Warning, format, args...) }
func (f *findings) fail(format string, args ...any) { f.add(Failure, format, args...) }

// take adds an error. A lack of rights is one line for each check.
func (f *findings) take(err error) {
	switch {
	case err == nil:
	case apierrors.IsForbidden(err):
		if right := missingRight(err); !slices.Contains(f.unread, right) {
			f.unread = append(f.unread, right)
		}
	default:
		f.fail("%v", err)
	}
}

func (f *findings) sayUnread() {
	if len(f.unread) > 0 {
		f.warn("not all was checked: you may not %s", few(f.unread))
	}
	f.unread = nil
}

var deniedRight = regexp.MustCompile(`cannot (\w+) resource "([^"]+)" in API group "([^"]*)"(?: in the namespace "([^"]+)")?`)

// missingRight returns the right that a user lacks, from the API server's message.
func missingRight(err error) string {
	found := deniedRight.FindStringSubmatch(err.Error())
	if found == nil {
		return fmt.Sprintf("read this: %v", err)
	}
	return rightText(authorizationv1.ResourceAttributes{Verb: found[1], Resource: found[2], Group: found[3], Namespace: found[4]})
}

// hasFound reports whether the check at hand has found a failure or a warning.
func (f *findings) hasFound() bool {
	return len(f.unread) > 0 || slices.ContainsFunc(f.lines, func(l Line) bool { return l.Check == f.check && l.Result != OK })
}

// few joins names, and counts those beyond the fourth.
func few(names []string) string {
	const most = 4
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}
