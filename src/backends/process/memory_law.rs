//! The law of shared memory, over real sockets and memories: no range is written while a value in it is alive, and in the end
//! all are free.

use std::io::ErrorKind;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::frame::{Frame, FrameKind, FrameReader};
use super::memory_reader::{MemoryReader, WholeFrame};
use super::memory_writer::{MemoryWriter, message_into};
use super::message;
use super::outgoing::{Outgoing, receive};
use crate::backends::memory::shared_bytes::{SharedBytes, reading};
use crate::backends::memory::shared_memory::SharedMemory;
use crate::error::FrameError;

const MOST: usize = 1 << 20;
const WORKERS: usize = 2;

/// What happens next.
#[derive(Debug, Clone)]
enum Step {
    /// The driver makes a value of this length.
    Make(usize),
    /// A worker makes one, and sends it to the driver.
    Answer(usize, usize),
    /// The driver sends a worker some of its values, also those of the other worker.
    Send(usize, Vec<prop::sample::Index>),
    /// The driver sends a large body.
    Body(usize, usize),
    /// The driver drops a value, or a worker does.
    Drop(Option<usize>, prop::sample::Index),
    /// A worker and its connection end, and another takes its place.
    Die(usize),
    /// So much time passes that pages are given back that nothing needs.
    Age,
}

/// Bytes, and the number that all of them are.
struct Value {
    bytes: SharedBytes,
    byte: u8,
}

/// One end of a connection.
struct End {
    socket: UnixStream,
    outgoing: Outgoing,
    frames: FrameReader,
    writer: MemoryWriter,
    reader: MemoryReader,
    memory: SharedMemory,
    values: Vec<Value>,
}

struct World {
    memory: SharedMemory,
    values: Vec<Value>,
    /// The driver's end and the worker's of each connection.
    links: Vec<(End, End)>,
    /// What dead workers had: a process that ends frees nothing of its memory.
    dead: Vec<End>,
    made: u8,
    now: Instant,
}

impl End {
    fn new(socket: UnixStream, memory: &SharedMemory) -> Self {
        socket.set_nonblocking(true).unwrap();
        let reader = MemoryReader::new(MOST, 8, 1 << 20);
        End {
            socket,
            outgoing: Outgoing::default(),
            frames: FrameReader::new(MOST),
            writer: MemoryWriter::new(memory.clone(), reader.spares.clone()),
            reader,
            memory: memory.clone(),
            values: vec![],
        }
    }

    fn send(&mut self, values: &[(&SharedBytes, u8)], padding: usize) {
        let write = |body: &mut Vec<u8>| -> Result<(), FrameError> {
            message::put(body, &values)?;
            body.extend(vec![7; padding]);
            Ok(())
        };
        let message = message_into(vec![], FrameKind::Items, MOST, write).unwrap();
        self.reader.put_notes(&mut self.outgoing);
        self.writer.put(message, &mut self.outgoing);
    }

    /// Writes and reads what it can. Returns whether anything went.
    fn pump(&mut self) -> bool {
        let mut went = false;
        while !self.outgoing.is_empty() {
            match self.outgoing.write(&self.socket) {
                Ok(_) => went = true,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => panic!("{error}"),
            }
        }
        let mut piece = [0; 10_000];
        while let Ok(length) = receive(&self.socket, &mut piece, &mut self.reader.arrived) {
            went = true;
            let mut rest = &piece[..length];
            while let Some(frame) = self.frames.feed(&mut rest).unwrap() {
                match self.reader.take(frame).unwrap() {
                    WholeFrame::Message(frame) => self.take(&frame),
                    WholeFrame::Note(note) => self.writer.heed(&note).unwrap(),
                    WholeFrame::Taken => {}
                }
            }
        }
        went
    }

    fn take(&mut self, frame: &Frame) {
        let split = || message::split::<Vec<(SharedBytes, u8)>>(frame);
        let (values, padding) = reading(&frame.attachments, split).unwrap();
        assert!(padding == vec![7; padding.len()], "a body was written over");
        self.values.extend(values.into_iter().map(|(bytes, byte)| Value { bytes, byte }));
    }
}

impl World {
    fn new() -> Self {
        let memory = SharedMemory::keeping(300_000);
        let links = (0..WORKERS).map(|_| World::link(&memory)).collect();
        World { memory, values: vec![], links, dead: vec![], made: 0, now: Instant::now() }
    }

    fn link(memory: &SharedMemory) -> (End, End) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (End::new(ours, memory), End::new(theirs, &SharedMemory::keeping(200_000)))
    }

    fn next_byte(&mut self) -> u8 {
        self.made = self.made.wrapping_add(1);
        self.made
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Make(length) => {
                let byte = self.next_byte();
                self.values.push(Value { bytes: self.memory.write(&vec![byte; length]), byte });
            }
            Step::Answer(worker, length) => {
                let byte = self.next_byte();
                let (_, end) = &mut self.links[worker];
                let bytes = end.memory.write(&vec![byte; length]);
                end.send(&[(&bytes, byte)], 0);
            }
            Step::Send(worker, which) if !self.values.is_empty() => {
                let values = which.iter().map(|which| which.get(&self.values));
                let values: Vec<_> = values.map(|value| (&value.bytes, value.byte)).collect();
                self.links[worker].0.send(&values, 0);
            }
            Step::Body(worker, length) => self.links[worker].0.send(&[], length),
            Step::Drop(side, which) => {
                let values = match side {
                    None => &mut self.values,
                    Some(worker) => &mut self.links[worker].1.values,
                };
                if !values.is_empty() {
                    values.swap_remove(which.index(values.len()));
                }
            }
            Step::Die(worker) => {
                let link = std::mem::replace(&mut self.links[worker], World::link(&self.memory));
                self.dead.push(link.1);
            }
            Step::Age => {
                self.now += Duration::from_secs(10);
                self.memory.age(self.now);
                self.links.iter().for_each(|(_, worker)| _ = worker.memory.age(self.now));
            }
            Step::Send(..) => {}
        }
        self.pump();
    }

    fn pump(&mut self) {
        for (driver, worker) in &mut self.links {
            while driver.pump() | worker.pump() {}
            self.values.append(&mut driver.values);
        }
    }

    fn check(&self) {
        let theirs = self.links.iter().flat_map(|(_, worker)| &worker.values);
        for Value { bytes, byte } in self.values.iter().chain(theirs) {
            assert!(
                bytes.to_vec().unwrap().iter().all(|it| it == byte),
                "a value was written over"
            );
        }
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let length = || prop::sample::select(vec![1, 65_535, 65_536, 70_000, 100_000, 200_000]);
    let step = prop_oneof![
        3 => length().prop_map(Step::Make),
        3 => (0..WORKERS, length()).prop_map(|(worker, length)| Step::Answer(worker, length)),
        4 => (0..WORKERS, prop::collection::vec(any::<prop::sample::Index>(), 1..4))
            .prop_map(|(worker, which)| Step::Send(worker, which)),
        1 => (0..WORKERS, length()).prop_map(|(worker, length)| Step::Body(worker, length)),
        4 => (prop::option::of(0..WORKERS), any::<prop::sample::Index>())
            .prop_map(|(side, which)| Step::Drop(side, which)),
        1 => (0..WORKERS).prop_map(Step::Die),
        2 => Just(Step::Age),
    ];
    prop::collection::vec(step, 0..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn no_range_is_written_under_a_value_and_all_are_free_in_the_end(steps in steps()) {
        let mut world = World::new();
        for step in steps {
            world.take(step);
            world.check();
        }
        world.values.clear();
        world.links.iter_mut().for_each(|(_, worker)| worker.values.clear());
        // Each side says what it has let go with its next message, and a value of one worker may have been with the other.
        for _ in 0..3 {
            for (driver, worker) in &mut world.links {
                worker.send(&[], 0);
                driver.send(&[], 0);
            }
            world.pump();
        }
        for (driver, worker) in &world.links {
            prop_assert!(!driver.writer.has_lent() && !worker.writer.has_lent());
            prop_assert_eq!(worker.memory.taken(), 0);
        }
        prop_assert_eq!(world.memory.taken(), 0);
    }
}
