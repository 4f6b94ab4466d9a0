// Written by openclaw_rl/dashboard/server/contract.py from the shapes of views/page/; do not edit.
// Times are seconds since 1970. Every POST has a JSON body ({} where none is named) and the header
// Content-Type: application/json. Errors (status 400 and above) are a Failure.
// Page after page: ?after=NEXT until next is null; limit is 1 to 200, 50 unless told.
// Events are text/event-stream: `event: NAME`, `data: JSON`, an empty line; a line with : first is none.
// Files: openclaw_rl/dashboard/ is served at /ui/ (index.html there); nothing of server/, no .py, no .ts.
// `user`: whose line; without it, that of who is signed in. The owner may name any of Me.users, and *
// for all of them where a list is asked for.
// The session is a cookie; a POST needs the page's own Origin, which browsers send by themselves.

/** `link` is what stands behind #link= in the address that was printed. */
export interface LinkBody {
  link: string;
}

/** Who is signed in, and what answers them. */
export interface Me {
  user: string;
  /** The owner sees every user's line; others see their own. */
  is_owner: boolean;
  /** Whose lines can be looked at: for the owner all, the environments' (env:NAME) too. */
  users: string[];
  /** The name that the model is served by. */
  model: string;
  /** The version that answers this user now; v0 is the base model. */
  version: string;
  /** What the page can be read in: the names of its files i18n/*.json. */
  languages: string[];
  /** False where the server only answers and records (`openclaw-rl serve`). */
  learns: boolean;
  /** The release of OpenClaw-RL. */
  release: string;
}

export interface KeyBody {
  key: string;
}

/** It is done. */
export interface Done {
  ok: true;
}

/** First of all, and after every reconnection: whatever is shown may be old. */
export interface LiveHello {
  event: "hello";
  version: string;
  at: number;
}

/** A turn was stored, by whatever client. */
export interface LiveTurn {
  event: "turn";
  user: string;
  session: string;
  turn: string;
}

export interface CorrectionStage {
  name: "heard" | "judged" | "learning" | "checked" | "live";
  /** When it was reached; null: not yet, or never. */
  at: number | null;
  /** How long after the stage before it. */
  took_s: number | null;
  words: string;
}

/** Why nothing is learned from a turn. */
export interface LeftOut {
  /** One word, such as neutral or claim. */
  reason: string;
  words: string;
  /** What would change it; empty where nothing would. */
  remedy: string;
}

export interface Correction {
  turn: string;
  state: "heard" | "judged" | "learning" | "checking" | "live" | "left_out" | "rejected" | "taken_back";
  /** The whole state in a sentence, such as: live in v7. */
  words: string;
  /** What the person said. */
  sentence: string;
  /** Always the five, in order. */
  stages: CorrectionStage[];
  /** +1, 0, −1, another number with its sign, abstained or failed; null while nobody has judged. */
  verdict: string | null;
  hints: string[];
  /** The version that learned it, whatever its state. */
  version: string | null;
  left_out: LeftOut | null;
}

/** The state of a correction has changed. */
export interface LiveCorrection {
  event: "correction";
  session: string;
  user: string;
  correction: Correction;
}

/** A version was made, checked, put live or taken back; `answers` is what answers the user from now on. */
export interface LiveVersion {
  event: "version";
  user: string;
  version: string;
  state: string;
  answers: string;
}

/** Something of the machine has changed: ask /ui/api/machine, at most once a second. */
export interface LiveMachine {
  event: "machine";
}

export interface ConversationRow {
  id: string;
  /** The beginning of the first thing that was said. */
  title: string;
  user: string;
  client: string;
  opened_at: number;
  last_seen_at: number;
  is_closed: boolean;
  /** Nothing in it is learned from. */
  is_private: boolean;
  /** Main turns: those that a person or a tool reacts to. */
  num_turns: number;
  versions: string[];
}

export interface ConversationPage {
  items: ConversationRow[];
  next: string | null;
}

/** A tool call; `arguments` is JSON as the model wrote it. */
export interface CallText {
  name: string;
  arguments: string;
}

/** One message. All of it is text, and never markup of the page. */
export interface SaidText {
  role: string;
  text: string;
  thinking: string;
  calls: CallText[];
}

/** What somebody said of an answer outright. */
export interface Given {
  user: string;
  at: number;
  score: number | null;
  text: string;
}

/** A request and its answer. Turns of one parent are alternatives: an edited question, or another answer. */
export interface ChatTurn {
  /** SESSION.INDEX */
  id: string;
  index: number;
  /** The index of the turn that it continues; null at the beginning of a conversation. */
  parent: number | null;
  kind: "main" | "side";
  /** What was new in the request: the person's words, or results of tools. */
  asked: SaidText[];
  answer: SaidText;
  /** The version that gave the answer. */
  version: string;
  /** All of them, where the answer was continued by another one. */
  versions: string[];
  finish_reason: "stop" | "length" | "tool_calls" | "abort" | "error";
  num_tokens: number;
  created_at: number;
  finished_at: number;
  is_private: boolean;
  feedback: Given[];
  /** What became of what was said about this answer; null while nobody has said anything. */
  correction: Correction | null;
}

/** Turns in their order; `next` asks for earlier ones (`?before=NEXT`). */
export interface ConversationDetail {
  session: ConversationRow;
  turns: ChatTurn[];
  next: string | null;
}

/** What a person says. A new conversation: `text` alone. The next message: `after` is the turn that it continues. An edited message: `after` is the parent of the edited turn, or null together with its `session` at the beginning. Another answer to the same question: `again` is the turn. Stop: end the request. */
export interface SayBody {
  text?: string;
  session?: string | null;
  /** SESSION.INDEX */
  after?: string | null;
  /** SESSION.INDEX */
  again?: string | null;
  /** Nothing of this conversation is learned from. */
  private?: boolean;
  /** With `again`: an answer to compare with, such as by the new version; nobody learns from it, and it is no part of the conversation. */
  beside?: boolean;
  /** Such as v3 or v0; null is the version that answers now. */
  version?: string | null;
  max_tokens?: number | null;
  temperature?: number | null;
}

export interface AnswerBegun {
  event: "begun";
  turn: string;
  session: string;
  version: string;
}

/** More of the answer, of its thinking, or of a tool call as it is written. */
export interface AnswerText {
  event: "text" | "thinking" | "call";
  text: string;
}

/** The answer is complete and on disk. */
export interface AnswerEnded {
  event: "ended";
  turn: string;
  finish_reason: "stop" | "length" | "tool_calls" | "abort" | "error";
  num_tokens: number;
}

export interface AnswerFailed {
  event: "failed";
  message: string;
  code: string;
}

/** A thumb, a sentence, or both. */
export interface OpinionBody {
  score?: -1 | 0 | 1 | null;
  text?: string;
}

export interface LessonRow {
  turn: string;
  session: string;
  user: string;
  /** When the sentence came. */
  at: number;
  /** The beginning of what was said. */
  sentence: string;
  /** Such as en or zh; `other` where it is none that is told apart, empty where there are no words. */
  language: string;
  verdict: string | null;
  /** The verdict as a filter names it. */
  kind: "good" | "neutral" | "bad" | "abstained" | "failed" | "unjudged";
  /** Who decided, in words; empty while nobody has judged. */
  judge: string;
  /** The one that is learned, or the first; empty where there is none. */
  hint: string;
  state: "heard" | "judged" | "learning" | "checking" | "live" | "left_out" | "rejected" | "taken_back";
  words: string;
  version: string | null;
}

export interface LessonPage {
  items: LessonRow[];
  next: string | null;
}

export interface VoteText {
  question: "score" | "hint" | "claim";
  /** +1, 0, −1 or failed; yes or no for the other questions. */
  answer: string;
  words: string;
}

/** One token of the answer, and which way it is moved: up is green, down red, hint blue; none is not trained. */
export interface TokenTold {
  text: string;
  way: "up" | "down" | "hint" | "none";
  /** Its probability, 0 to 1; null where no engine has told it. */
  before: number | null;
  after: number | null;
}

/** One sample of a lesson: the answer itself, a demonstration of the wish, or an accepted rewrite. */
export interface SampleTold {
  id: string;
  kind: "turn" | "rewrite" | "demonstration" | "anchor" | "exercise";
  reward: number;
  text: string;
  tokens: TokenTold[];
}

/** A step that learned from the turn. */
export interface UseText {
  step: number;
  version: string | null;
  state: string;
  is_replay: boolean;
  /** Whether it is part of what answers now. */
  answers: boolean;
}

export interface LessonDetail {
  row: LessonRow;
  asked: SaidText[];
  answer: SaidText;
  /** What came after the answer. */
  followed: SaidText[];
  correction: Correction;
  /** The judge's words. */
  reason: string;
  /** The judge's name and version. */
  judged_by: string;
  votes: VoteText[];
  hints: string[];
  samples: SampleTold[];
  uses: UseText[];
  /** Empty where the tokens have them, else why not; /tokens asks the engine. */
  probabilities: string;
  /** What can be done about it now. */
  actions: ("accept" | "reject" | "hint" | "undo" | "forget")[];
}

/** The tokens of all samples of a lesson with their probabilities before and after its version. */
export interface LessonTokens {
  turn: string;
  version: string | null;
  samples: SampleTold[];
  /** Empty, or why there are none. */
  probabilities: string;
}

/** What an undo or a reject came to. */
export interface UndoneText {
  words: string;
  answered: string;
  answers: string;
  undone: string[];
}

/** The owner's own sentence in place of the hint. */
export interface HintBody {
  hint: string;
}

export interface LeftOutCount {
  reason: string;
  words: string;
  remedy: string;
  num_turns: number;
}

export interface LeftOutCounts {
  items: LeftOutCount[];
}

export interface VersionRow {
  /** Its label, such as v3 or v3.ann. */
  version: string;
  user: string;
  number: number;
  /** 0 is the base model. */
  parent: number;
  state: "base" | "candidate" | "no_effect" | "probation" | "live" | "retired" | "rejected" | "rolled_back";
  /** Whether it answers now. */
  answers: boolean;
  /** Whether the one that answers stands on it. */
  is_ancestor: boolean;
  created_at: number;
  live_at: number | null;
  reason: string;
  num_lessons: number;
  num_replayed: number;
  is_imported: boolean;
  loss: number | null;
  /** Whether one can roll back, or forward, to it. */
  can_answer: boolean;
  /** Whether it can be exported. */
  has_weights: boolean;
}

/** The newest first. The base model is no row: its number is 0 and `answering` may name it. */
export interface VersionPage {
  items: VersionRow[];
  next: string | null;
  answering: string;
}

/** One thing that the check measured. `low` and `high` are the limits that the candidate must keep to. */
export interface CheckMeasure {
  name: string;
  words: string;
  base: number | null;
  parent: number | null;
  candidate: number | null;
  /** The limit in words; empty where there is none. */
  limit: string;
  low: number | null;
  high: number | null;
  /** Whether this measure rejects the version. */
  objects: boolean;
}

/** That engine and trainer agree about what the version changes. */
export interface ProofText {
  is_proved: boolean;
  words: string;
}

/** How its answers to people fared, beside its parent's. */
export interface ServedCount {
  name: string;
  words: string;
  num: number;
  of: number;
  parent_num: number;
  parent_of: number;
  odds: number;
  alarm_odds: number;
  is_alarm: boolean;
}

export interface VersionLesson {
  sample: string;
  /** Null: its turn is gone, or was undone. */
  turn: string | null;
  sentence: string;
  hint: string;
  is_replayed: boolean;
}

export interface VersionDetail {
  row: VersionRow;
  check: "none" | "quick" | "full";
  check_s: number | null;
  measures: CheckMeasure[];
  proof: ProofText | null;
  served: ServedCount[];
  lessons: VersionLesson[];
  /** What the trainer told of the step, such as loss/total. */
  metrics: Record<string, number>;
  sha256: string;
  /** What it was trained on. */
  model: string;
}

export interface MeasurePair {
  name: string;
  words: string;
  left: number | null;
  right: number | null;
}

/** Any two versions of a line side by side; `lessons` are those that one has learned and the other has not. */
export interface Comparison {
  /** Null is the base model. */
  left: VersionRow | null;
  right: VersionRow | null;
  measures: MeasurePair[];
  only_left: VersionLesson[];
  only_right: VersionLesson[];
}

/** `untried` allows a version that never served, such as one that its check rejected. */
export interface RollBackBody {
  untried?: boolean;
}

export interface NowAnswers {
  version: string;
}

/** The fixed questions that two versions can be asked. */
export interface Questions {
  items: string[];
}

/** One question to two versions, such as v3 and v0; nothing of it is kept. */
export interface AskBody {
  question: string;
  left: string;
  right: string;
}

export interface TwoAnswers {
  question: string;
  left: string;
  right: string;
  left_version: string;
  right_version: string;
}

export interface TrendPoint {
  version: string;
  number: number;
  at: number;
  state: "base" | "candidate" | "no_effect" | "probation" | "live" | "retired" | "rejected" | "rolled_back";
  value: number;
  parent: number | null;
  base: number | null;
}

/** One measure over the versions of a line, the oldest first. */
export interface Trend {
  name: string;
  words: string;
  points: TrendPoint[];
  /** The limits that the newest version had to keep to, where it had any. */
  low: number | null;
  high: number | null;
}

export interface Alarm {
  version: string;
  words: string;
  at: number | null;
}

/** `trends` has what there are figures for: towards_user, capability, length, repetition, refusals, reward, … */
export interface Trends {
  user: string;
  trends: Trend[];
  alarms: Alarm[];
}

export interface LoopStage {
  name: "captured" | "judged" | "credited" | "trained" | "checked" | "live";
  light: "ok" | "busy" | "waits" | "broken" | "off";
  /** What it does, or waits for. */
  words: string;
  /** What waits before it. */
  num_waiting: number;
  /** How long the oldest of that has waited. */
  oldest_s: number | null;
  /** What went through it in the last hour. */
  num_last_hour: number;
}

export interface EngineTold {
  name: string;
  light: "ok" | "busy" | "waits" | "broken" | "off";
  words: string;
  device: string;
  model: string;
  versions: string[];
  /** What it computes: requests of one of several engines; answers under way where there is only one. */
  num_running: number;
  num_restarts: number;
  /** Sampled tokens a second, of all engines together, since the machine was looked at before; null: not yet known. */
  tokens_per_s: number | null;
  /** What its process holds, without what it shares; null where it runs elsewhere. */
  memory_bytes: number | null;
}

export interface TrainerTold {
  light: "ok" | "busy" | "waits" | "broken" | "off";
  words: string;
  backend: string;
  /** Steps of all lines in the last hour. */
  steps: number;
  last_step_s: number | null;
  tokens_per_s: number | null;
  memory_bytes: number | null;
  /** Which; empty where none was named. */
  gpu: string;
}

export interface JudgeTold {
  light: "ok" | "busy" | "waits" | "broken" | "off";
  words: string;
  judge: string;
  /** Who decided lately, by how often. */
  judges: Record<string, number>;
  num_judged: number;
  /** The share of votes for a score that agree with the verdict they came to, 0 to 1. */
  agreement: number | null;
  sureness: number | null;
  /** Votes of the judge's endpoint that 24 hours allow; null: no limit. */
  budget: number | null;
  /** How many of them are spent; null where there is no limit, or no such judge. */
  spent: number | null;
}

export interface EnvironmentTold {
  name: string;
  num_episodes: number;
  /** Attempts that the environment failed: they say nothing of the agent. */
  num_failed: number;
  /** The mean reward of the newest 100 attempts that ended. */
  success: number | null;
  last_at: number | null;
}

export interface DiskTold {
  store_bytes: number;
  versions_bytes: number;
  free_bytes: number;
  total_bytes: number;
}

/** What `openclaw-rl doctor` would say. */
export interface Remark {
  name: string;
  state: "ok" | "remark" | "broken";
  text: string;
  remedy: string;
}

/** For the owner everything; other users see their own queue, and no disk or remarks. */
export interface Machine {
  at: number;
  uptime_s: number;
  stages: LoopStage[];
  engines: EngineTold[];
  trainer: TrainerTold | null;
  judge: JudgeTold | null;
  environments: EnvironmentTold[];
  disk: DiskTold | null;
  remarks: Remark[];
}

export interface SettingRow {
  /** Such as training.batch_size. */
  key: string;
  /** As it would be written down; secrets are not shown. */
  value: string;
  default: string;
  /** Where it was set: default, a file's name, environment or command line. */
  origin: string;
  /** What it does. */
  words: string;
  /** How to change it. */
  command: string;
}

export interface SettingRows {
  items: SettingRow[];
}

export interface YourData {
  user: string;
  num_sessions: number;
  num_turns: number;
  num_versions: number;
  /** After how many days ended conversations are deleted; null: never. */
  retention_days: number | null;
  /** How the owner changes that. */
  retention_command: string;
  /** Whether secrets are taken out before anything is stored. */
  redacts: boolean;
}

/** One conversation, or with `everything` all that the user ever said; `confirm` is the name of what is deleted. */
export interface ForgetBody {
  session?: string | null;
  everything?: boolean;
  confirm: string;
}

export interface ForgottenText {
  words: string;
  sessions: number;
  /** Versions that were deleted. */
  deleted: string[];
  /** Whether its bytes are gone too; otherwise they will be in a while. */
  is_erased: boolean;
}

export interface ErrorText {
  /** What went wrong and what to do about it, for a person. */
  message: string;
  type: string;
  /** missing_session (401): sign in; not_found (404); origin_not_allowed (403); conflict (409); … */
  code: string | null;
  param: string | null;
}

/** Every answer with a status of 400 or more. */
export interface Failure {
  error: ErrorText;
}

export interface Routes {
  /** POST /ui/api/link — Exchanges a printed link, once, for the session cookie. */
  "POST /ui/api/link": { body: LinkBody; answer: Me };
  /** POST /ui/api/sign-in — An API key for the session cookie. */
  "POST /ui/api/sign-in": { body: KeyBody; answer: Me };
  /** POST /ui/api/sign-out — Ends the session. */
  "POST /ui/api/sign-out": { answer: Done };
  /** GET /ui/api/me — Who is signed in. */
  "GET /ui/api/me": { answer: Me };
  /** GET /ui/api/events — What changes, while the page is open. The data of every event is JSON; its name is in `event`, too. */
  "GET /ui/api/events": { events: LiveHello | LiveTurn | LiveCorrection | LiveVersion | LiveMachine };
  /** GET /ui/api/sessions?user=&after=&limit= — Conversations, the one seen last first. */
  "GET /ui/api/sessions": { answer: ConversationPage };
  /** GET /ui/api/sessions/{session}?before=&limit= — The newest turns of a conversation; `before=NEXT` asks for earlier ones. */
  "GET /ui/api/sessions/{session}": { answer: ConversationDetail };
  /** GET /ui/api/turns/{turn} — One turn. */
  "GET /ui/api/turns/{turn}": { answer: ChatTurn };
  /** POST /ui/api/chat — Says something; the answer comes as events. An error before the first of them is a Failure. */
  "POST /ui/api/chat": { body: SayBody; events: AnswerBegun | AnswerText | AnswerEnded | AnswerFailed };
  /** POST /ui/api/turns/{turn}/feedback — A thumb, a sentence, or both. */
  "POST /ui/api/turns/{turn}/feedback": { body: OpinionBody; answer: Correction };
  /** GET /ui/api/turns/{turn}/correction — What became of what was said; 404 where nothing was said. */
  "GET /ui/api/turns/{turn}/correction": { answer: Correction };
  /** GET /ui/api/lessons?user=&session=&language=&verdict=&state=&after=&limit= — Lessons, the newest first; with a filter a part may be short, and `next` still goes on. */
  "GET /ui/api/lessons": { answer: LessonPage };
  /** GET /ui/api/lessons/{turn} — One lesson, without probabilities. */
  "GET /ui/api/lessons/{turn}": { answer: LessonDetail };
  /** GET /ui/api/lessons/{turn}/tokens — Its tokens with probabilities before and after, asked of the engine: may take seconds. */
  "GET /ui/api/lessons/{turn}/tokens": { answer: LessonTokens };
  /** POST /ui/api/lessons/{turn}/accept — The person agrees with the verdict: it is learned from, also where the judge was not sure. */
  "POST /ui/api/lessons/{turn}/accept": { answer: Correction };
  /** POST /ui/api/lessons/{turn}/reject — Nothing is learned from it, and what was is taken back. */
  "POST /ui/api/lessons/{turn}/reject": { answer: UndoneText };
  /** POST /ui/api/lessons/{turn}/hint — The person's own sentence in place of the hint; judged and credited again. */
  "POST /ui/api/lessons/{turn}/hint": { body: HintBody; answer: Correction };
  /** POST /ui/api/lessons/{turn}/undo — Takes back what it taught. */
  "POST /ui/api/lessons/{turn}/undo": { answer: UndoneText };
  /** GET /ui/api/left-out?user= — What was not learned from, and why. */
  "GET /ui/api/left-out": { answer: LeftOutCounts };
  /** GET /ui/api/versions?user=&after=&limit= — Versions of a line, the newest first. */
  "GET /ui/api/versions": { answer: VersionPage };
  /** GET /ui/api/versions/{version} — One version with all that was measured of it. */
  "GET /ui/api/versions/{version}": { answer: VersionDetail };
  /** GET /ui/api/versions/{version}/compare/{other}?user= — Two versions of one line side by side; v0 is the base model. */
  "GET /ui/api/versions/{version}/compare/{other}": { answer: Comparison };
  /** POST /ui/api/versions/{version}/rollback?user= — Lets it answer again; v0 with `user` for the base model. */
  "POST /ui/api/versions/{version}/rollback": { body: RollBackBody; answer: NowAnswers };
  /** GET /ui/api/versions/{version}/export — Its adapter as a .tar file. */
  "GET /ui/api/versions/{version}/export": { answer: Blob };
  /** GET /ui/api/questions — Fixed questions to ask versions. */
  "GET /ui/api/questions": { answer: Questions };
  /** POST /ui/api/ask?user= — One question to two versions; may take seconds. */
  "POST /ui/api/ask": { body: AskBody; answer: TwoAnswers };
  /** GET /ui/api/trends?user= — Measures over the versions of a line, with alarms. */
  "GET /ui/api/trends": { answer: Trends };
  /** GET /ui/api/machine — The loop and what runs. */
  "GET /ui/api/machine": { answer: Machine };
  /** GET /ui/api/settings — Every setting with its origin; the owner's alone. */
  "GET /ui/api/settings": { answer: SettingRows };
  /** GET /ui/api/data?user= — What is kept of a user. */
  "GET /ui/api/data": { answer: YourData };
  /** GET /ui/api/data/export?user= — Everything of a user, as JSON lines. */
  "GET /ui/api/data/export": { answer: Blob };
  /** POST /ui/api/data/forget?user= — Deletes a conversation, or everything of the user, with what was learned from it. */
  "POST /ui/api/data/forget": { body: ForgetBody; answer: ForgottenText };
}
