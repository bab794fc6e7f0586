package report

import (
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/cli/survey"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
)

// Plan puts a survey into a plan. The set exists unless told otherwise.
func Plan(s survey.Survey) *SetPlan {
	set := s.Set.Set
	plan := &SetPlan{TypeMeta: kind(kindPlan), Namespace: set.Namespace, Name: set.Name, UID: set.UID, Exists: set.UID != ""}
	plan.add(nil, s.Plan)
	for _, g := range s.Groups {
		plan.add(&g.Index, g.Plan)
	}
	plan.InStep = len(plan.Parts) == 0
	return plan
}

// Plans puts several plans into one object; a single one stays as it is.
func Plans(all []*SetPlan) *SetPlanList {
	list := &SetPlanList{TypeMeta: kind(kindPlanList), Items: []SetPlan{}}
	for _, plan := range all {
		list.Items = append(list.Items, *plan)
	}
	return list
}

func (p *SetPlan) add(group *int, plan lws.Plan) {
	part := Part{Group: group, Waits: waits(plan.Waits)}
	for _, a := range plan.Actions {
		part.Actions = append(part.Actions, actionOf(a))
	}
	if len(part.Actions)+len(part.Waits) > 0 {
		p.Parts = append(p.Parts, part)
	}
}

func actionOf(a action.Action) Action {
	shown := Action{Verb: a.Verb(), Object: refOf(a.Target()), Reason: a.Why().Code, Message: a.Why().Sentence}
	target := a.Target()
	shown.Preconditions = Preconditions{UID: target.UID, ResourceVersion: target.ResourceVersion}
	switch a := a.(type) {
	case action.Create:
		shown.Preconditions = Preconditions{Absent: true, Alive: owner(&a.Owner)}
	case action.Apply:
		shown.Preconditions.Alive = owner(a.Adopter)
	case action.Tie:
		shown.Preconditions.Alive = owner(a.To)
	case action.Delete:
		shown.Preconditions.Gone = owner(a.OwnerGone)
	}
	return shown
}

func owner(ref *identity.Ref) *Object {
	if ref == nil {
		return nil
	}
	object := refOf(*ref)
	return &object
}
