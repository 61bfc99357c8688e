//! The same for programs: calls and answers as lines of text, by whichever doors programs reach a mount.

use amphi_model::Model;

use super::calls::{BYTES, Call, DIRS, FILES, NAMES, Place, World, draw};
use super::events::{Door, Event, Judged, judged, parts};
use super::lines::{line, text, told};
use super::order::Order;
use super::{CALLS, FULL, Numbers};

/// Programs that call one file system at the same time, and the model that explains their answers.
pub struct Programs {
    doors: Vec<Door>,
    model: Model,
    world: World,
    dice: Numbers,
    round: Vec<Vec<Call>>,
}

impl Programs {
    /// Of one program for each door. The file system has directories `x` and `y`, and in each an empty file
    /// `0` with mode 644, which all programs hold open: what calls name by 0 and 1.
    ///
    /// # Panics
    /// Never: a model takes what it is furnished with.
    #[must_use]
    pub fn new(seed: u64, doors: &[Door]) -> Self {
        let model = Model::new();
        let world = World::furnish(&model).expect("a model takes them");
        Self { doors: doors.to_vec(), model, world, dice: Numbers::new(seed), round: Vec::new() }
    }

    /// What each program is to call next, a line a call.
    pub fn draw(&mut self) -> Vec<Vec<String>> {
        let dice = &mut self.dice;
        let mut of = |door: &Door| match draw(dice) {
            Call::Write { file, offset, data, append: true, .. } if *door == Door::Kernel => {
                Call::Write { file, offset, data, append: true, direct: true }
            }
            call => call,
        };
        self.round = self.doors.iter().map(|door| (0..CALLS).map(|_| of(door)).collect()).collect();
        let lines = |calls: &Vec<Call>| calls.iter().map(|call| line(*call)).collect();
        self.round.iter().map(lines).collect()
    }

    /// What each program is to be asked when all have returned.
    #[must_use]
    pub fn questions() -> Vec<String> {
        at_rest().into_iter().map(line).collect()
    }

    /// Finds an order of the calls that were drawn last that explains what each program was answered, and
    /// what each finds at rest. A line is the nanosecond at which a call began, the one at which it returned,
    /// and what came of it.
    ///
    /// # Errors
    /// The calls that no order explains, or a line that is none.
    pub fn judge(&mut self, answers: &[Vec<String>], found: &[Vec<String>]) -> Result<(), String> {
        let mut history = Vec::new();
        for (program, (calls, lines)) in self.round.iter().zip(answers).enumerate() {
            for (&call, line) in calls.iter().zip(lines) {
                let (began, returned, answer) = told(line)?;
                let by_kernel = self.doors[program].is_by_kernel(call);
                for part in parts(by_kernel, call).into_iter().flatten() {
                    let (answer, number, judged) = (answer.clone(), history.len(), Judged::Whole);
                    let event =
                        Event { program, by_kernel, call, began, returned, answer, part, number, judged };
                    history.push(event);
                }
            }
        }
        let judged: Vec<_> = (0..history.len()).map(|at| judged(&history, at)).collect();
        history.iter_mut().zip(judged).for_each(|(event, judged)| event.judged = judged);
        let found = found.iter().map(|lines| lines.iter().map(|line| Ok(told(line)?.2)).collect());
        let found: Vec<Vec<String>> = found.collect::<Result<_, String>>()?;
        self.model =
            self.explain(&history, &found).map_err(|why| format!("{why}\n  before:{}", self.at_rest()))?;
        Ok(())
    }

    /// Finds an order of these calls.
    fn explain(&self, events: &[Event], found: &[Vec<String>]) -> Result<Model, String> {
        Order {
            events,
            is_before: &|first, second| first.is_before(second),
            is_explained: &|model, event| self.is_explained(model, event),
            may_be_nothing: &|event| matches!(event.judged, Judged::WholeOrNoEffect),
            is_left: &|model| {
                for (call, number) in at_rest().into_iter().zip(0..) {
                    let due = self.answer(model, call);
                    let differs = |lines: &&Vec<String>| lines[number] != due;
                    if let Some(lines) = found.iter().find(differs) {
                        let (what, found) = (line(call), &lines[number]);
                        return Err(format!("{what}: a program found {found}, and due is {due}"));
                    }
                }
                Ok(())
            },
        }
        .explain(&self.model)
    }

    /// Has a model do what a call did; whether it says the same.
    fn is_explained(&self, model: &Model, event: &Event) -> bool {
        // What is not offered, or has no room, has no effect.
        if ["unsupported", FULL].contains(&&*event.answer) {
            return true;
        }
        if let (Call::Write { file, offset, data, .. }, false) = (event.call, event.part.is_empty()) {
            let (at, bytes) = (offset + event.part.start as u64, data.bytes());
            return self.world.write(model, file, at, &bytes[event.part.clone()]).is_ok();
        }
        match event.judged {
            Judged::Nothing => true,
            Judged::Whole | Judged::WholeOrNoEffect => self.answer(model, event.call) == event.answer,
            Judged::Words(words) => {
                let of = |text: &str| -> Vec<String> {
                    let all: Vec<_> = text.split(' ').collect();
                    words.iter().map(|word| (*all.get(*word).unwrap_or(&text)).to_owned()).collect()
                };
                of(&self.answer(model, event.call)) == of(&event.answer)
            }
        }
    }

    fn answer(&self, model: &Model, call: Call) -> String {
        text(call, &self.world.answer(model, call))
    }

    /// What the model answers to what programs are asked at rest.
    fn at_rest(&self) -> String {
        at_rest()
            .into_iter()
            .map(|call| format!(" {}: {};", line(call), self.answer(&self.model, call)))
            .collect()
    }
}

/// What is asked when nothing is being changed.
fn at_rest() -> Vec<Call> {
    let places = (0..DIRS).flat_map(|dir| (0..NAMES).map(move |name| Place { dir, name }));
    let files = (0..FILES).flat_map(|file| {
        let read = |direct| Call::Read { file, offset: 0, length: 4 * BYTES, direct };
        [Call::GetAttr(file), read(false), read(true), Call::GetXattr(file)]
    });
    files.chain(places.map(Call::Lookup)).chain((0..DIRS).map(Call::List)).collect()
}
