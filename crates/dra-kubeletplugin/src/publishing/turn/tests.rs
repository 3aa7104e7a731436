use proptest::prelude::*;

use super::*;

const LONG_AGO: Duration = Duration::from_secs(3600);

type Row = (bool, bool, bool, Option<Duration>, Waiting, Step);

#[test]
fn the_newest_registered_instance_with_a_wish_publishes() {
    use Step::{Publish, StayOut, Take, Wait, Yield};
    use Waiting::{Newer, Nobody, Older};
    let (registered, away, gone) = (None, Some(Duration::from_secs(29)), Some(REGISTRATION_PATIENCE));
    #[rustfmt::skip]
    let table: &[Row] = &[
        // publishing, wish, alone, away, who waits, what to do
        (false, false, true,  registered, Nobody, StayOut),
        (false, false, false, registered, Older,  StayOut),
        (false, true,  true,  registered, Nobody, Take),
        (false, true,  false, registered, Nobody, Take),
        (false, true,  false, registered, Older,  Take),
        (false, true,  false, registered, Newer,  Wait),
        // Alone, it keeps right what is there.
        (false, true,  true,  away,       Nobody, Take),
        (false, true,  false, away,       Nobody, StayOut),
        (false, true,  false, gone,       Older,  StayOut),
        (false, true,  false, gone,       Newer,  StayOut),
        (true,  true,  true,  registered, Nobody, Publish),
        (true,  true,  false, registered, Older,  Publish),
        (true,  true,  false, registered, Newer,  Yield),
        (true,  true,  false, away,       Newer,  Yield),
        (true,  true,  false, away,       Older,  Publish),
        (true,  true,  false, gone,       Nobody, Publish),
        (true,  true,  false, gone,       Older,  Yield),
        (true,  true,  true,  gone,       Nobody, Publish),
    ];
    for (publishing, has_wish, alone, away_for, waiting, expected) in table.iter().copied() {
        let seen = Seen { publishing, has_wish, alone, away_for, waiting };
        assert_eq!(decide(&seen), expected, "{seen:?}");
    }
}

/// An instance of the model; its number is its place in the list.
#[derive(Clone, Debug, Default)]
struct Instance {
    dead: bool,
    wish: bool,
    /// For how long it has not been registered; `None` if it is.
    away_for: Option<Duration>,
    waits: bool,
}

#[derive(Clone, Debug, Default)]
struct Node {
    instances: Vec<Instance>,
    holder: Option<usize>,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Start,
    Wish(usize),
    Register(usize),
    Lose(usize),
    Die(usize),
    Look(usize),
    Pass(u64),
}

impl Node {
    fn apply(&mut self, event: Event) {
        match event {
            Event::Start => {
                self.instances.push(Instance { away_for: Some(Duration::ZERO), ..Instance::default() });
            }
            Event::Wish(i) => self.with(i, |instance| instance.wish = true),
            Event::Register(i) => self.with(i, |instance| instance.away_for = None),
            Event::Lose(i) => self.with(i, |instance| {
                instance.away_for.get_or_insert_default();
            }),
            Event::Die(i) => {
                self.with(i, |instance| {
                    *instance =
                        Instance { dead: true, away_for: Some(Duration::ZERO), ..Instance::default() };
                });
                self.holder.take_if(|holder| *holder == i);
            }
            Event::Look(i) => self.look(i),
            Event::Pass(seconds) => {
                let time = Duration::from_secs(seconds);
                for away in self.instances.iter_mut().filter_map(|instance| instance.away_for.as_mut()) {
                    *away += time;
                }
            }
        }
    }

    fn with(&mut self, i: usize, change: impl FnOnce(&mut Instance)) {
        if let Some(instance) = self.instances.get_mut(i).filter(|instance| !instance.dead) {
            change(instance);
        }
    }

    fn seen(&self, i: usize) -> Seen {
        let instance = &self.instances[i];
        let others = || self.instances.iter().enumerate().filter(|(j, _)| *j != i);
        let newest = others().filter(|(_, other)| other.waits).map(|(j, _)| j).max();
        Seen {
            publishing: self.holder == Some(i),
            has_wish: instance.wish,
            alone: others().all(|(_, other)| other.dead),
            away_for: instance.away_for,
            waiting: newest.map_or(Waiting::Nobody, |j| if j > i { Waiting::Newer } else { Waiting::Older }),
        }
    }

    fn look(&mut self, i: usize) {
        if self.instances.get(i).is_none_or(|instance| instance.dead) {
            return;
        }
        let seen = self.seen(i);
        let step = decide(&seen);
        self.instances[i].waits = seen.away_for.is_none() && matches!(step, Step::Wait | Step::Take);
        match step {
            Step::Take if self.holder.is_none() => {
                assert!(seen.alone || seen.away_for.is_none(), "{seen:?}");
                self.holder = Some(i);
                self.instances[i].waits = false;
            }
            Step::Yield => self.holder = None,
            _ => {}
        }
        assert!(self.holder.is_none_or(|holder| self.instances[holder].wish), "{self:?}");
    }

    /// All look often enough for everything to come to rest.
    fn settle(&mut self, order: &[usize]) {
        for _ in 0..4 {
            for i in order {
                self.look(*i);
            }
        }
    }

    /// Who should publish: the newest that is ready.
    fn newest_ready(&self) -> Option<usize> {
        self.instances.iter().rposition(|instance| instance.wish && instance.away_for.is_none())
    }
}

fn event() -> impl Strategy<Value = Event> {
    let who = 0..5usize;
    prop_oneof![
        1 => Just(Event::Start),
        2 => who.clone().prop_map(Event::Wish),
        2 => who.clone().prop_map(Event::Register),
        1 => who.clone().prop_map(Event::Lose),
        1 => who.clone().prop_map(Event::Die),
        6 => who.prop_map(Event::Look),
        1 => (1..40u64).prop_map(Event::Pass),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn turns_come_to_rest_with_the_newest_instance_that_is_ready(
        events in prop::collection::vec(event(), 1..60),
        order in Just((0..64).collect::<Vec<usize>>()).prop_shuffle(),
    ) {
        let mut node = Node::default();
        for event in events {
            node.apply(event);
        }
        node.settle(&order);
        let at_rest = node.clone();
        node.settle(&order);
        prop_assert_eq!(node.holder, at_rest.holder, "it goes back and forth: {:?}", node);
        if let Some(ready) = node.newest_ready() {
            let holder = node.holder.expect("somebody publishes");
            prop_assert!(holder >= ready, "{:?}", node);
            // A newer holder that is not registered is given time.
            node.apply(Event::Pass(LONG_AGO.as_secs()));
            node.settle(&order);
            prop_assert_eq!(node.holder, Some(ready), "{:?}", node);
        }
        let living: Vec<_> = node.instances.iter().filter(|instance| !instance.dead).collect();
        if let [only] = living.as_slice() {
            prop_assert_eq!(node.holder.is_some(), only.wish, "{:?}", node);
        }
    }
}
