//! Second layer of the log's index: a skip list of the pages of one partition that have data in the log
//! (ByteFS §4.3).
//!
//! A partition has few enough pages that 16 bits name a page and a node. Nodes (16 B) form the bottom list;
//! one in four also has a tower (16 B) in the express lists above, which repeats the page number so that a
//! search touches nothing else on its way down.
//!
//! A partition with many pages also has fingers: for each group of four pages its first node, so that the
//! search for one page, which every load makes, starts next to its end.

use std::ops::Range;

use super::chunks::{Chunk, ChunkArena};
use crate::format::PAGE;
use crate::planted::{self, Bug};

const NIL: u16 = u16::MAX;
/// Express lists: with one tower in four, 4^6 pages keep the top one short.
const LEVELS: usize = 6;

#[derive(Clone, Copy, Debug)]
struct Node {
    page: u16,
    next: u16,
    count: u16,
    /// The longest chunk the page ever had: how far before an offset a search must start.
    reach: u16,
    /// The chunk itself if there is one; otherwise `place` is its run in the arena and `offset` the run's
    /// size class.
    chunks: Chunk,
}

#[derive(Clone, Copy, Debug)]
struct Tower {
    page: u16,
    node: u16,
    next: [u16; LEVELS],
}

/// Pages that share a finger, as a power of two.
const FINGER: u16 = 2;
/// Pages from which a partition has fingers.
const FINGERS_FROM: u16 = 32;

const _: () = assert!(size_of::<Node>() == 16 && size_of::<Tower>() == 16);

/// The pages of one partition that have chunks in the log.
#[derive(Debug)]
pub(crate) struct PageIndex {
    nodes: Vec<Node>,
    towers: Vec<Tower>,
    arena: ChunkArena,
    first: u16,
    lanes: [u16; LEVELS],
    /// The first node of each group of pages, or none at all while there are few pages.
    fingers: Vec<u16>,
    free_node: u16,
    free_tower: u16,
    pages: u16,
    random: u32,
}

impl PageIndex {
    /// An empty index, without storage. `seed` decides the towers' heights.
    pub(crate) const fn new(seed: u32) -> Self {
        Self {
            nodes: Vec::new(),
            towers: Vec::new(),
            arena: ChunkArena::new(),
            first: NIL,
            lanes: [NIL; LEVELS],
            fingers: Vec::new(),
            free_node: NIL,
            free_tower: NIL,
            pages: 0,
            random: seed | 1,
        }
    }

    /// Pages with chunks.
    pub(crate) const fn pages(&self) -> usize {
        self.pages as usize
    }

    /// The tower after `tower` (or the first) in an express list.
    fn lane(&self, tower: u16, level: usize) -> u16 {
        if tower == NIL { self.lanes[level] } else { self.towers[usize::from(tower)].next[level] }
    }

    /// The last tower before `page` in each express list.
    fn towers_before(&self, page: u16) -> [u16; LEVELS] {
        let mut before = [NIL; LEVELS];
        let mut tower = NIL;
        for level in (0..LEVELS).rev() {
            loop {
                let next = self.lane(tower, level);
                if next == NIL || self.towers[usize::from(next)].page >= page {
                    break;
                }
                tower = next;
            }
            before[level] = tower;
        }
        before
    }

    /// The last node before `page`, given the last tower before it.
    fn node_before(&self, tower: u16, page: u16) -> u16 {
        let mut before = if tower == NIL { NIL } else { self.towers[usize::from(tower)].node };
        loop {
            let next = if before == NIL { self.first } else { self.nodes[usize::from(before)].next };
            if next == NIL || self.nodes[usize::from(next)].page >= page {
                return before;
            }
            before = next;
        }
    }

    /// The first node at or after `page`.
    fn seek(&self, page: u16) -> u16 {
        let mut tower = NIL;
        for level in (0..LEVELS).rev() {
            loop {
                let next = self.lane(tower, level);
                if next == NIL {
                    break;
                }
                let at = &self.towers[usize::from(next)];
                if at.page == page {
                    return at.node;
                }
                if at.page > page {
                    break;
                }
                tower = next;
            }
        }
        let before = self.node_before(tower, page);
        if before == NIL { self.first } else { self.nodes[usize::from(before)].next }
    }

    /// The node of `page`.
    fn find(&self, page: u16) -> Option<u16> {
        let mut at = if self.fingers.is_empty() {
            self.seek(page)
        } else {
            *self.fingers.get(usize::from(page >> FINGER))?
        };
        loop {
            let node = self.nodes.get(usize::from(at))?;
            if node.page >= page {
                let lost = page % 7 == 6 && planted::has(Bug::SkipListEndsEarly);
                return (node.page == page && !lost).then_some(at);
            }
            at = node.next;
        }
    }

    /// Points the group's finger at a new node if it is the group's first.
    fn point_at(&mut self, new: u16) {
        if self.fingers.is_empty() {
            if self.pages < FINGERS_FROM {
                return;
            }
            let mut at = self.first;
            while at != NIL {
                self.point(at);
                at = self.nodes[usize::from(at)].next;
            }
        } else {
            self.point(new);
        }
    }

    fn point(&mut self, at: u16) {
        let page = self.nodes[usize::from(at)].page;
        let group = usize::from(page >> FINGER);
        if group >= self.fingers.len() {
            self.fingers.reserve_exact(group + 1 - self.fingers.len());
            self.fingers.resize(group + 1, NIL);
        }
        let finger = self.fingers[group];
        if finger == NIL || self.nodes[usize::from(finger)].page > page {
            self.fingers[group] = at;
        }
    }

    /// Moves the group's finger off a node that goes.
    fn point_off(&mut self, at: u16) {
        let Node { page, next, .. } = self.nodes[usize::from(at)];
        let group = page >> FINGER;
        if self.fingers.get(usize::from(group)) == Some(&at) {
            let stays = next != NIL && self.nodes[usize::from(next)].page >> FINGER == group;
            self.fingers[usize::from(group)] = if stays { next } else { NIL };
        }
    }

    /// The first page at or after `page` that has chunks.
    pub(crate) fn next_page(&self, page: u16) -> Option<u16> {
        self.nodes.get(usize::from(self.seek(page))).map(|node| node.page)
    }

    /// The chunks of a page, by offset; of equal offsets, in no order that means anything.
    pub(crate) fn chunks(&self, page: u16) -> &[Chunk] {
        self.find(page).map_or(&[], |at| self.node_chunks(&self.nodes[usize::from(at)]))
    }

    fn node_chunks<'a>(&'a self, node: &'a Node) -> &'a [Chunk] {
        match node.count {
            1 => std::slice::from_ref(&node.chunks),
            count => self.arena.run(node.chunks.place, usize::from(count)),
        }
    }

    /// The chunks of a page that may meet `start..end`; those at either edge may miss it.
    pub(crate) fn chunks_near(&self, page: u16, start: usize, end: usize) -> &[Chunk] {
        self.find(page).map_or(&[], |at| {
            let node = &self.nodes[usize::from(at)];
            let chunks = self.node_chunks(node);
            &chunks[near(chunks, node.reach, start, end)]
        })
    }

    fn random_height(&mut self) -> usize {
        // xorshift32
        let mut x = self.random;
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        self.random = x;
        ((x | 1 << 31).trailing_zeros() as usize / 2).min(LEVELS)
    }

    /// Adds a chunk to a page. Answers whether there was room: a page has at most 65,535 chunks.
    pub(crate) fn insert(&mut self, page: u16, chunk: Chunk) -> bool {
        if let Some(at) = self.find(page) {
            return self.add_to_node(at, chunk);
        }
        let before = self.towers_before(page);
        let node_before = self.node_before(before[0], page);
        let at = if node_before == NIL { self.first } else { self.nodes[usize::from(node_before)].next };
        let node = Node { page, next: at, count: 1, reach: chunk.len, chunks: chunk };
        let new = if self.free_node == NIL {
            if self.nodes.capacity() == self.nodes.len() {
                self.nodes.reserve_exact((self.nodes.len() / 8).max(8));
            }
            self.nodes.push(node);
            (self.nodes.len() - 1) as u16
        } else {
            let new = self.free_node;
            self.free_node = self.nodes[usize::from(new)].next;
            self.nodes[usize::from(new)] = node;
            new
        };
        if node_before == NIL {
            self.first = new;
        } else {
            self.nodes[usize::from(node_before)].next = new;
        }
        self.pages += 1;
        self.point_at(new);
        let height = self.random_height();
        if height > 0 {
            self.raise_tower(page, new, height, &before);
        }
        true
    }

    fn raise_tower(&mut self, page: u16, node: u16, height: usize, before: &[u16; LEVELS]) {
        let mut tower = Tower { page, node, next: [NIL; LEVELS] };
        for (level, next) in tower.next.iter_mut().enumerate().take(height) {
            *next = self.lane(before[level], level);
        }
        let new = if self.free_tower == NIL {
            if self.towers.capacity() == self.towers.len() {
                self.towers.reserve_exact((self.towers.len() / 8).max(4));
            }
            self.towers.push(tower);
            (self.towers.len() - 1) as u16
        } else {
            let new = self.free_tower;
            self.free_tower = self.towers[usize::from(new)].node;
            self.towers[usize::from(new)] = tower;
            new
        };
        for (level, &before) in before.iter().enumerate().take(height) {
            if before == NIL {
                self.lanes[level] = new;
            } else {
                self.towers[usize::from(before)].next[level] = new;
            }
        }
    }

    fn add_to_node(&mut self, at: u16, chunk: Chunk) -> bool {
        let node = self.nodes[usize::from(at)];
        let count = usize::from(node.count);
        if node.count == u16::MAX {
            return false;
        }
        let (run, class) = if count == 1 {
            let run = self.arena.take(1);
            self.arena.run_mut(run, 2)[0] = node.chunks;
            (run, 1)
        } else if count == 1 << node.chunks.offset {
            let class = node.chunks.offset + 1;
            let run = self.arena.take(class);
            self.arena.move_run(node.chunks.place, run, count);
            self.arena.give(node.chunks.place, node.chunks.offset);
            (run, class)
        } else {
            (node.chunks.place, node.chunks.offset)
        };
        let chunks = self.arena.run_mut(run, count + 1);
        let position = chunks[..count].partition_point(|other| other.offset <= chunk.offset);
        chunks.copy_within(position..count, position + 1);
        chunks[position] = chunk;
        let node = &mut self.nodes[usize::from(at)];
        node.count += 1;
        node.reach = node.reach.max(chunk.len);
        node.chunks = Chunk { place: run, offset: class, len: 0 };
        true
    }

    /// The chunks of a page that cover the same bytes as `like`, each to be given another place.
    pub(crate) fn same_bytes(&mut self, page: u16, like: Chunk) -> impl Iterator<Item = &mut Chunk> {
        let chunks = self.find(page).map_or(&mut [][..], |at| self.node_chunks_mut(usize::from(at)));
        let from = chunks.partition_point(|chunk| chunk.offset < like.offset);
        chunks[from..]
            .iter_mut()
            .take_while(move |chunk| chunk.offset == like.offset)
            .filter(move |chunk| chunk.len == like.len)
    }

    fn node_chunks_mut(&mut self, at: usize) -> &mut [Chunk] {
        let node = self.nodes[at];
        match node.count {
            1 => std::slice::from_mut(&mut self.nodes[at].chunks),
            count => self.arena.run_mut(node.chunks.place, usize::from(count)),
        }
    }

    /// Keeps the chunks of a page for which `keep` says so; `keep` may change a chunk's place. Answers how
    /// many were dropped.
    pub(crate) fn retain(&mut self, page: u16, keep: impl FnMut(&mut Chunk) -> bool) -> usize {
        self.retain_near(page, 0, PAGE as usize, keep)
    }

    /// The same, where nothing but what may meet `start..end` is asked about: what
    /// [`chunks_near`](Self::chunks_near) answers.
    pub(crate) fn retain_near(
        &mut self,
        page: u16,
        start: usize,
        end: usize,
        mut keep: impl FnMut(&mut Chunk) -> bool,
    ) -> usize {
        let Some(at) = self.find(page) else { return 0 };
        let node = self.nodes[usize::from(at)];
        let count = usize::from(node.count);
        if count == 1 {
            let mut chunk = node.chunks;
            if keep(&mut chunk) {
                self.nodes[usize::from(at)].chunks = chunk;
                return 0;
            }
            self.remove_node(page);
            return 1;
        }
        let chunks = self.arena.run_mut(node.chunks.place, count);
        let asked = near(chunks, node.reach, start, end);
        let (mut kept, after) = (asked.start, asked.end);
        for position in asked {
            let mut chunk = chunks[position];
            if keep(&mut chunk) {
                chunks[kept] = chunk;
                kept += 1;
            }
        }
        let dropped = after - kept;
        chunks.copy_within(after.., kept);
        let kept = count - dropped;
        let (run, class) = (node.chunks.place, node.chunks.offset);
        let only = chunks[0];
        match kept {
            0 => {
                self.arena.give(run, class);
                self.remove_node(page);
            }
            1 => {
                self.arena.give(run, class);
                let node = &mut self.nodes[usize::from(at)];
                node.count = 1;
                node.chunks = only;
            }
            _ => {
                let fitting = ChunkArena::class_for(kept);
                let node_chunks = if fitting < class {
                    let smaller = self.arena.take(fitting);
                    self.arena.move_run(run, smaller, kept);
                    self.arena.give(run, class);
                    Chunk { place: smaller, offset: fitting, len: 0 }
                } else {
                    node.chunks
                };
                let node = &mut self.nodes[usize::from(at)];
                node.count = kept as u16;
                node.chunks = node_chunks;
            }
        }
        dropped
    }

    /// Drops all chunks of a page. Answers how many there were.
    pub(crate) fn remove(&mut self, page: u16) -> usize {
        self.retain(page, |_| false)
    }

    /// Unlinks a page's node, whose chunks have been given back.
    fn remove_node(&mut self, page: u16) {
        let before = self.towers_before(page);
        let node_before = self.node_before(before[0], page);
        let at = if node_before == NIL { self.first } else { self.nodes[usize::from(node_before)].next };
        let after = self.nodes[usize::from(at)].next;
        self.point_off(at);
        if node_before == NIL {
            self.first = after;
        } else {
            self.nodes[usize::from(node_before)].next = after;
        }
        self.nodes[usize::from(at)].next = self.free_node;
        self.free_node = at;
        let tower = self.lane(before[0], 0);
        if tower != NIL && self.towers[usize::from(tower)].page == page {
            for (level, &before) in before.iter().enumerate() {
                if self.lane(before, level) == tower {
                    let next = self.towers[usize::from(tower)].next[level];
                    if before == NIL {
                        self.lanes[level] = next;
                    } else {
                        self.towers[usize::from(before)].next[level] = next;
                    }
                }
            }
            self.towers[usize::from(tower)].node = self.free_tower;
            self.free_tower = tower;
        }
        self.pages -= 1;
        if self.pages == 0 {
            // An empty partition gives its memory back.
            *self = Self::new(self.random);
        }
    }

    /// Bytes of memory held.
    pub(crate) fn bytes(&self) -> usize {
        self.nodes.capacity() * size_of::<Node>()
            + self.towers.capacity() * size_of::<Tower>()
            + self.fingers.capacity() * size_of::<u16>()
            + self.arena.bytes()
    }
}

/// Which of a page's chunks, none longer than `reach`, may meet `start..end`.
fn near(chunks: &[Chunk], reach: u16, start: usize, end: usize) -> Range<usize> {
    if chunks.len() <= 4 {
        return 0..chunks.len();
    }
    let before = |chunk: &Chunk| usize::from(chunk.offset) + usize::from(reach) <= start;
    // Chunks tend to be spread evenly: look where the first would then be, and around it.
    let mut from = start * chunks.len() / PAGE as usize;
    let mut tries = 0;
    while from > 0 && !before(&chunks[from - 1]) && tries < 8 {
        from -= 1;
        tries += 1;
    }
    while from < chunks.len() && before(&chunks[from]) && tries < 8 {
        from += 1;
        tries += 1;
    }
    if tries == 8 {
        from = chunks.partition_point(before);
    }
    let length = chunks[from..].iter().take_while(|chunk| usize::from(chunk.offset) < end).count();
    from..from + length
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::dice::Dice;

    fn chunk(place: u32, offset: u16, len: u16) -> Chunk {
        Chunk { place, offset, len }
    }

    #[test]
    fn agrees_with_a_sorted_map_through_random_work() {
        for seed in 0..20_u64 {
            let mut dice = Dice::new(seed);
            let mut index = PageIndex::new(seed as u32);
            let mut model: BTreeMap<u16, Vec<Chunk>> = BTreeMap::new();
            for step in 0..4_000_u32 {
                let page = dice.below(if seed % 2 == 0 { 30 } else { 4096 }) as u16;
                match dice.below(10) {
                    0 => {
                        let gone = model.remove(&page).map_or(0, |chunks| chunks.len());
                        assert_eq!(index.remove(page), gone, "seed {seed} step {step}");
                    }
                    1 => {
                        let parity = dice.below(2) as u32;
                        let (start, end) = match dice.below(2) {
                            0 => (0, PAGE as usize),
                            _ => {
                                let start = dice.below(4000) as usize;
                                (start, start + 1 + dice.below(96) as usize)
                            }
                        };
                        let kept = |chunk: &Chunk| !chunk.meets(start, end) || chunk.place % 2 == parity;
                        index.retain_near(page, start, end, |chunk| kept(chunk));
                        if let Some(chunks) = model.get_mut(&page) {
                            chunks.retain(kept);
                            if chunks.is_empty() {
                                model.remove(&page);
                            }
                        }
                    }
                    _ => {
                        let new = chunk(step, dice.below(4000) as u16, 1 + dice.below(96) as u16);
                        assert!(index.insert(page, new));
                        let chunks = model.entry(page).or_default();
                        let position = chunks.partition_point(|other| other.offset <= new.offset);
                        chunks.insert(position, new);
                    }
                }
                if step % 97 == 0 {
                    assert_eq!(index.pages(), model.len());
                    let mut pages = Vec::new();
                    let mut from = 0;
                    while let Some(page) = index.next_page(from) {
                        pages.push(page);
                        from = page + 1;
                    }
                    assert_eq!(pages, model.keys().copied().collect::<Vec<_>>(), "seed {seed} step {step}");
                    for (&page, chunks) in &model {
                        assert_eq!(index.chunks(page), chunks, "seed {seed} step {step}");
                        let start = dice.below(4096) as usize;
                        let end = (start + 1 + dice.below(200) as usize).min(4096);
                        let near: Vec<_> = index
                            .chunks_near(page, start, end)
                            .iter()
                            .copied()
                            .filter(|c| c.meets(start, end))
                            .collect();
                        let expected: Vec<_> =
                            chunks.iter().copied().filter(|c| c.meets(start, end)).collect();
                        assert_eq!(near, expected, "seed {seed} step {step}");
                    }
                }
            }
        }
    }

    #[test]
    fn an_empty_index_holds_no_memory() {
        let mut index = PageIndex::new(1);
        for page in 0..500 {
            index.insert(page, chunk(0, 0, 64));
        }
        assert!(index.bytes() > 0);
        for page in 0..500 {
            index.remove(page);
        }
        assert_eq!((index.bytes(), index.pages()), (0, 0));
    }
}
