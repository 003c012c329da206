//! Finds the loop of a function's machine code in which a call lies. x86-64.
//!
//! Loops are natural loops: a jump back to a block that dominates it. If a jump cannot be followed
//! (jump tables, parts that the compiler moved out of the function), the answer is "unknown", never
//! "none". Memory: the code, up to 256 KiB a function; time: 2^24 steps a function, and 2^20 a call.

use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, OpKind, Register};

/// Larger functions are not analysed.
pub const MOST_CODE_BYTES: u64 = 256 << 10;
const MOST_STEPS: usize = 1 << 20;
const MOST_STEPS_A_FUNCTION: usize = 1 << 24;

/// The loop of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Around {
    Unknown,
    NoLoop,
    Loop(CodeLoop),
}

/// Addresses in the function's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CodeLoop {
    /// The start of every iteration.
    pub header: u64,
    /// A jump back to it.
    pub latch: u64,
}

#[derive(Clone, Debug, Default)]
struct Block {
    start: u64,
    /// The address of the last instruction.
    last: u64,
    end: u64,
    /// Whether the block ends in a jump with unknown targets.
    leaves_view: bool,
    calls: bool,
    /// If the block begins with a null test of the pointer in rax: the successor that is taken only for
    /// null.
    if_null: Option<usize>,
}

/// The blocks to which each block leads.
struct Edges {
    /// Those of block `b` are `to[starts[b]..starts[b + 1]]`.
    starts: Vec<usize>,
    to: Vec<usize>,
}

impl Edges {
    fn of(&self, block: usize) -> &[usize] {
        &self.to[self.starts[block]..self.starts[block + 1]]
    }

    fn each(&self) -> impl Iterator<Item = (usize, usize)> {
        let blocks = 0..self.starts.len() - 1;
        blocks.flat_map(|block| self.of(block).iter().map(move |to| (block, *to)))
    }

    fn reversed(&self) -> Self {
        // Counted at `b + 2`, so that `starts[b + 1]` is where block `b` begins, and where it ends once it is filled.
        let mut starts = vec![0; self.starts.len() + 1];
        for (_, to) in self.each() {
            starts[to + 2] += 1;
        }
        for block in 2..starts.len() {
            starts[block] += starts[block - 1];
        }
        let mut sources = vec![0; self.to.len()];
        for (from, to) in self.each() {
            let place = &mut starts[to + 1];
            sources[*place] = from;
            *place += 1;
        }
        starts.pop();
        Self {
            starts,
            to: sources,
        }
    }
}

/// A function's basic blocks with their dominators.
pub struct FunctionCode {
    blocks: Vec<Block>,
    successors: Edges,
    /// By block: its immediate dominator; `None`: not reachable from the start.
    dominators: Vec<Option<usize>>,
    /// By block: its predecessors.
    sources: Edges,
}

impl FunctionCode {
    pub fn new(code: &[u8], start: u64) -> Self {
        let instructions = decode(code, start);
        let (blocks, successors) = blocks(
            &instructions,
            start,
            start.saturating_add(code.len() as u64),
        );
        let sources = successors.reversed();
        let dominators = dominators(&successors, &sources);
        Self {
            blocks,
            successors,
            dominators,
            sources,
        }
    }

    /// The innermost loop in which the call that returns to `returns_to` can repeat. `allocates`: the
    /// call is of the malloc family, so a loop that ends when it succeeds is none.
    pub fn around(&self, returns_to: u64, allocates: bool) -> Around {
        let found = self
            .blocks
            .binary_search_by_key(&returns_to, |block| block.end);
        let Some(call) = found.ok().filter(|found| self.blocks[*found].calls) else {
            return Around::Unknown;
        };
        let (comes_again, leaves_view) = self.goes_on(call);
        let mut steps = 0;
        let next = self.successors.of(call);
        let any = self.innermost(call, next, &mut steps);
        let on_success = match self.after_success(next) {
            Some(after) => self.innermost(call, &after, &mut steps),
            None => any,
        };
        match (any, on_success) {
            _ if steps > MOST_STEPS => Around::Unknown,
            (_, Some(found)) => Around::Loop(found),
            (Some(_), None) if !allocates => Around::Unknown,
            (None, None) if comes_again => Around::Unknown,
            _ if leaves_view => Around::Unknown,
            _ => Around::NoLoop,
        }
    }

    /// What follows the successors of a call if its result is not null; `None`: its result is not tested.
    fn after_success(&self, next: &[usize]) -> Option<Vec<usize>> {
        let next = *next.first()?;
        let null = self.blocks[next].if_null?;
        let all = self.successors.of(next).iter().copied();
        Some(all.filter(|successor| *successor != null).collect())
    }

    fn innermost(&self, call: usize, from: &[usize], steps: &mut usize) -> Option<CodeLoop> {
        let mut header = call;
        loop {
            let is_header = self
                .sources
                .of(header)
                .iter()
                .any(|latch| self.dominates(header, *latch, steps));
            if is_header && let Some(latch) = self.back_to(header, call, from, steps) {
                return Some(CodeLoop {
                    header: self.blocks[header].start,
                    latch: self.blocks[latch].last,
                });
            }
            let above = self.dominators[header]?;
            if above == header || *steps > MOST_STEPS {
                return None;
            }
            header = above;
        }
    }

    /// The block that jumps back to `header` on a path from `call` over `from`, without leaving the
    /// blocks that `header` dominates.
    fn back_to(
        &self,
        header: usize,
        call: usize,
        from: &[usize],
        steps: &mut usize,
    ) -> Option<usize> {
        if from.contains(&header) {
            return Some(call);
        }
        let mut seen = vec![false; self.blocks.len()];
        let mut open = from.to_vec();
        while let Some(block) = open.pop() {
            *steps += 1;
            if *steps > MOST_STEPS {
                return None;
            }
            if std::mem::replace(&mut seen[block], true) || !self.dominates(header, block, steps) {
                continue;
            }
            if self.successors.of(block).contains(&header) {
                return Some(block);
            }
            open.extend(self.successors.of(block));
        }
        None
    }

    fn dominates(&self, above: usize, block: usize, steps: &mut usize) -> bool {
        // Dominators have smaller addresses in most code, but not in all: the whole chain is walked.
        let mut at = block;
        while at != above && *steps <= MOST_STEPS {
            *steps += 1;
            match self.dominators[at] {
                Some(next) if next != at => at = next,
                _ => return false,
            }
        }
        at == above
    }

    /// Whether the call can repeat, and whether control can reach code that cannot be followed.
    fn goes_on(&self, call: usize) -> (bool, bool) {
        let mut seen = vec![false; self.blocks.len()];
        let mut open = self.successors.of(call).to_vec();
        let mut leaves_view = false;
        while let Some(block) = open.pop() {
            if !std::mem::replace(&mut seen[block], true) {
                leaves_view |= self.blocks[block].leaves_view;
                open.extend(self.successors.of(block));
            }
        }
        (seen[call], leaves_view)
    }
}

/// How far a direct call at the end of some code leads, from there.
pub fn direct_call(code: &[u8]) -> Option<i64> {
    const CALL: u8 = 0xe8;
    match code.get(code.len().checked_sub(5)?..)? {
        [CALL, a, b, c, d] => Some(i64::from(i32::from_le_bytes([*a, *b, *c, *d]))),
        _ => None,
    }
}

fn decode(code: &[u8], start: u64) -> Vec<Instruction> {
    let mut decoder = Decoder::with_ip(64, code, start, DecoderOptions::NONE);
    // An instruction has about four bytes.
    let mut instructions = Vec::with_capacity(code.len() / 4 + 1);
    while decoder.can_decode() {
        instructions.push(decoder.decode());
    }
    instructions
}

fn ends_block(instruction: &Instruction) -> bool {
    instruction.flow_control() != FlowControl::Next
}

fn blocks(instructions: &[Instruction], start: u64, end: u64) -> (Vec<Block>, Edges) {
    let inside = |target: u64| (start..end).contains(&target);
    let mut leaders: Vec<u64> = vec![start];
    for instruction in instructions {
        if ends_block(instruction) {
            leaders.push(instruction.next_ip());
            leaders.extend(jump_target(instruction).filter(|target| inside(*target)));
        }
    }
    leaders.sort_unstable();
    leaders.dedup();
    let mut blocks: Vec<Block> = Vec::with_capacity(leaders.len());
    let mut of_block: Vec<&[Instruction]> = Vec::with_capacity(leaders.len());
    let mut rest = instructions;
    for (index, leader) in leaders.iter().enumerate() {
        let to = leaders.get(index + 1).copied().unwrap_or(end);
        let count = rest.iter().take_while(|i| i.ip() < to).count();
        let (of, after) = rest.split_at(count);
        rest = after;
        // A target inside an instruction is not a block: the jump to it counts as unknown.
        if let (Some(first), Some(last)) = (of.first(), of.last())
            && first.ip() == *leader
        {
            of_block.push(of);
            blocks.push(Block {
                start: *leader,
                last: last.ip(),
                end: last.next_ip(),
                ..Block::default()
            });
        }
    }
    let mut starts = Vec::with_capacity(blocks.len() + 1);
    let mut to = Vec::with_capacity(2 * blocks.len());
    for (index, of) in of_block.into_iter().enumerate() {
        starts.push(to.len());
        connect(&mut blocks, index, of, &mut to);
    }
    starts.push(to.len());
    (blocks, Edges { starts, to })
}

fn jump_target(instruction: &Instruction) -> Option<u64> {
    let near = matches!(
        instruction.op0_kind(),
        OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64
    );
    let jumps = matches!(
        instruction.flow_control(),
        FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch
    );
    (near && jumps).then(|| instruction.near_branch_target())
}

/// Adds the successors of a block.
fn connect(blocks: &mut [Block], index: usize, instructions: &[Instruction], to: &mut Vec<usize>) {
    let Some(last) = instructions.last() else {
        return;
    };
    let number = |target| blocks.binary_search_by_key(&target, |block| block.start);
    let taken = jump_target(last).and_then(|target| number(target).ok());
    let next = Some(index + 1);
    let next = next.filter(|next| blocks.get(*next).is_some_and(|b| b.start == last.next_ip()));
    let block = &mut blocks[index];
    match last.flow_control() {
        FlowControl::ConditionalBranch => {
            block.leaves_view = taken.is_none();
            let if_null = match last.code() {
                Code::Je_rel8_64 | Code::Je_rel32_64 => taken,
                Code::Jne_rel8_64 | Code::Jne_rel32_64 => next,
                _ => None,
            };
            block.if_null = if_null.filter(|_| tests_pointer(instructions));
            to.extend(taken);
            to.extend(next.filter(|n| Some(*n) != taken));
        }
        // A jump out of the function is a tail call, unless it leads to a part that was moved out,
        // whose jump back is not visible; such a part has a symbol of its own and is reached by a
        // conditional jump.
        FlowControl::UnconditionalBranch => to.extend(taken),
        FlowControl::IndirectBranch => block.leaves_view = true,
        FlowControl::Return | FlowControl::Exception | FlowControl::Interrupt => {}
        FlowControl::Call | FlowControl::IndirectCall => {
            block.calls = true;
            to.extend(next);
        }
        FlowControl::Next | FlowControl::XbeginXabortXend => to.extend(next),
    }
}

/// Whether the block ends by comparing a call's result with null: rax, or the place where it was
/// stored.
fn tests_pointer(instructions: &[Instruction]) -> bool {
    // A bit for each 64-bit register; none for an operand in memory.
    let bit = |register: Register| {
        let number = (register as u32).wrapping_sub(Register::RAX as u32);
        1u16.checked_shl(number).unwrap_or(0)
    };
    let mut copies = bit(Register::RAX);
    let is_copy = |copies: u16, register| copies & bit(register) != 0;
    let mut stored: Option<(Register, u64)> = None;
    let place = |i: &Instruction| (i.memory_base(), i.memory_displacement64());
    for instruction in instructions {
        match instruction.code() {
            Code::Mov_r64_rm64 | Code::Mov_rm64_r64 => {
                let from_copy = is_copy(copies, instruction.op1_register());
                if instruction.op0_kind() == OpKind::Memory {
                    stored = from_copy.then(|| place(instruction)).or(stored);
                } else if from_copy
                    || (instruction.op1_kind() == OpKind::Memory
                        && stored == Some(place(instruction)))
                {
                    copies |= bit(instruction.op0_register());
                } else {
                    copies &= !bit(instruction.op0_register());
                }
            }
            Code::Test_rm64_r64 => {
                return instruction.op0_register() == instruction.op1_register()
                    && is_copy(copies, instruction.op0_register());
            }
            Code::Cmp_rm64_imm8 => {
                let held = match instruction.op0_kind() {
                    OpKind::Memory => stored == Some(place(instruction)),
                    _ => is_copy(copies, instruction.op0_register()),
                };
                return held && instruction.immediate8() == 0;
            }
            _ => {}
        }
    }
    false
}

/// Immediate dominators, by the iteration of Cooper, Harvey and Kennedy; none if that takes too long.
fn dominators(successors: &Edges, sources: &Edges) -> Vec<Option<usize>> {
    let count = successors.starts.len() - 1;
    let order = reverse_postorder(successors, count);
    let mut place = vec![usize::MAX; count];
    for (index, block) in order.iter().enumerate() {
        place[*block] = index;
    }
    let mut found: Vec<Option<usize>> = vec![None; count];
    let Some(start) = order.first() else {
        return found;
    };
    found[*start] = Some(*start);
    let (mut changed, mut steps) = (true, 0usize);
    while changed {
        changed = false;
        for block in &order[1..] {
            let mut known = sources.of(*block).iter().filter(|s| found[**s].is_some());
            let Some(first) = known.next() else { continue };
            let mut dominator = *first;
            for other in known {
                let mut other = *other;
                while dominator != other {
                    steps += 1;
                    if place[dominator] > place[other] {
                        dominator = found[dominator].unwrap_or(*start);
                    } else {
                        other = found[other].unwrap_or(*start);
                    }
                }
            }
            if steps > MOST_STEPS_A_FUNCTION {
                return vec![None; count];
            }
            if found[*block] != Some(dominator) {
                found[*block] = Some(dominator);
                changed = true;
            }
        }
    }
    found
}

fn reverse_postorder(successors: &Edges, count: usize) -> Vec<usize> {
    let mut order = Vec::with_capacity(count);
    let mut seen = vec![false; count];
    let mut open: Vec<(usize, usize)> = Vec::new();
    if let Some(first) = seen.first_mut() {
        *first = true;
        open.push((0, 0));
    }
    while let Some((block, next)) = open.last_mut() {
        match successors.of(*block).get(*next) {
            Some(successor) => {
                *next += 1;
                let successor = *successor;
                if !std::mem::replace(&mut seen[successor], true) {
                    open.push((successor, 0));
                }
            }
            None => {
                order.push(*block);
                open.pop();
            }
        }
    }
    order.reverse();
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_direct_call_leads_to_a_known_place() {
        assert_eq!(direct_call(&[0x90, 0xe8, 0x10, 0, 0, 0]), Some(16));
        assert_eq!(direct_call(&[0xe8, 0xf0, 0xff, 0xff, 0xff]), Some(-16));
        assert_eq!(direct_call(&[0x90, 0x90, 0x90, 0xff, 0xd0]), None);
        assert_eq!(direct_call(&[0xe8, 0, 0, 0]), None);
    }

    const START: u64 = 0x1000;
    const CALL: [u8; 5] = [0xe8, 0, 0x10, 0, 0];
    const RET: u8 = 0xc3;

    /// The code, and the return address of the call in it.
    fn function(parts: &[&[u8]], calls: usize) -> (FunctionCode, u64) {
        let code = parts.concat();
        let before: usize = parts[..=calls].iter().map(|part| part.len()).sum();
        (FunctionCode::new(&code, START), START + before as u64)
    }

    #[test]
    fn a_call_before_a_jump_back_is_in_a_loop_and_one_behind_it_is_not() {
        // nop; call; dec ecx; jne to the call; call; ret
        let parts: [&[u8]; 6] = [&[0x90], &CALL, &[0xff, 0xc9], &[0x75, 0xf7], &CALL, &[RET]];
        let (code, returns_to) = function(&parts, 1);
        let expected = CodeLoop {
            header: START + 1,
            latch: START + 8,
        };
        assert_eq!(code.around(returns_to, false), Around::Loop(expected));
        let (code, returns_to) = function(&parts, 4);
        assert_eq!(code.around(returns_to, false), Around::NoLoop);
        assert_eq!(
            code.around(returns_to - 1, false),
            Around::Unknown,
            "no call"
        );
        assert_eq!(code.around(7, false), Around::Unknown);
    }

    #[test]
    fn a_loop_that_success_ends_is_none_for_malloc_and_unknown_for_others() {
        // call; test rax, rax; je to the call; ret
        let parts: [&[u8]; 4] = [&CALL, &[0x48, 0x85, 0xc0], &[0x74, 0xf6], &[RET]];
        let (code, returns_to) = function(&parts, 0);
        assert_eq!(code.around(returns_to, true), Around::NoLoop);
        assert_eq!(code.around(returns_to, false), Around::Unknown);
        // The same with jne: a list is walked.
        let parts: [&[u8]; 4] = [&CALL, &[0x48, 0x85, 0xc0], &[0x75, 0xf6], &[RET]];
        let (code, returns_to) = function(&parts, 0);
        assert!(matches!(code.around(returns_to, true), Around::Loop(_)));
        // A status in eax is not a pointer.
        let parts: [&[u8]; 4] = [&CALL, &[0x85, 0xc0], &[0x74, 0xf7], &[RET]];
        let (code, returns_to) = function(&parts, 0);
        assert!(matches!(code.around(returns_to, false), Around::Loop(_)));
    }

    #[test]
    fn the_innermost_loop_is_named() {
        // outer: nop; inner: call; dec ecx; jne inner; dec edx; jne outer; ret
        let parts: [&[u8]; 7] = [
            &[0x90],
            &CALL,
            &[0xff, 0xc9],
            &[0x75, 0xf7],
            &[0xff, 0xca],
            &[0x75, 0xf2],
            &[RET],
        ];
        let (code, returns_to) = function(&parts, 1);
        let Around::Loop(found) = code.around(returns_to, false) else {
            panic!("no loop");
        };
        assert_eq!((found.header, found.latch), (START + 1, START + 8));
    }

    #[test]
    fn what_cannot_be_followed_is_not_known() {
        // call; jmp rax
        let (code, returns_to) = function(&[&CALL, &[0xff, 0xe0]], 0);
        assert_eq!(code.around(returns_to, false), Around::Unknown);
        // call; je far out; ret
        let (code, returns_to) = function(&[&CALL, &[0x74, 0x70], &[RET]], 0);
        assert_eq!(code.around(returns_to, false), Around::Unknown);
        // jmp rax; call; ret and jmp rax; call; jmp to the call: reached only by a jump table.
        let (code, returns_to) = function(&[&[0xff, 0xe0], &CALL, &[RET]], 1);
        assert_eq!(code.around(returns_to, false), Around::NoLoop);
        let (code, returns_to) = function(&[&[0xff, 0xe0], &CALL, &[0xeb, 0xf9]], 1);
        assert_eq!(code.around(returns_to, false), Around::Unknown);
        assert_eq!(FunctionCode::new(&[], 0).around(0, false), Around::Unknown);
    }

    #[test]
    fn any_bytes_are_taken() {
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..2000 {
            let code: Vec<u8> = (0..random.usize(..200)).map(|_| random.u8(..)).collect();
            let function = FunctionCode::new(&code, u64::MAX - 300);
            for block in &function.blocks {
                function.around(block.end, false);
            }
        }
    }
}
