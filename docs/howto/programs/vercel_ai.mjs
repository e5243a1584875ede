// Vercel AI SDK: text, stream, tool, object, responses, embeddings, image and speech.
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { createAnthropic } from "@ai-sdk/anthropic";
import * as ai from "ai";
import { z } from "zod";

const { SIXFOLD_URL, SIXFOLD_API_KEY: apiKey, SIXFOLD_MODEL: model } = process.env;
const baseURL = `${SIXFOLD_URL}/v1`;
const sixfold = createOpenAICompatible({ name: "sixfold", baseURL, apiKey, supportsStructuredOutputs: true });
const openai = createOpenAI({ baseURL, apiKey });
const anthropic = createAnthropic({ baseURL, apiKey });

const text = await ai.generateText({ model: sixfold(model), prompt: "say 3 words" });
console.log("text:", text.text);
let streamed = "";
for await (const part of ai.streamText({ model: sixfold(model), prompt: "say 4 words" }).textStream) streamed += part;
console.log("stream:", streamed);
const weather = ai.tool({
  description: "The weather of a city",
  inputSchema: z.object({ city: z.string() }),
  execute: async ({ city }) => `rain in ${city}`,
});
const called = await ai.generateText({ model: sixfold(model), tools: { weather }, prompt: "the weather in Oslo" });
console.log("tool:", JSON.stringify(called.toolResults[0].output));
const output = ai.Output.object({ schema: z.object({ city: z.string() }) });
const object = await ai.generateText({ model: sixfold(model), output, prompt: "a city" });
console.log("object:", JSON.stringify(object.output));
console.log("responses:", (await ai.generateText({ model: openai(model), prompt: "say 2 words" })).text);
console.log("anthropic:", (await ai.generateText({ model: anthropic(model), prompt: "say 3 words" })).text);
const { embedding } = await ai.embed({ model: sixfold.embeddingModel("embeddings"), value: "a lighthouse" });
console.log("embeddings:", embedding.length, "dimensions");
const { image } = await ai.generateImage({ model: sixfold.imageModel("ra1"), prompt: "a lighthouse", size: "1024x1024" });
console.log("image:", image.mediaType);
const speech = await ai.experimental_generateSpeech({ model: openai.speech("tts-1"), text: "Good morning", voice: "alloy" });
console.log("speech:", speech.audio.mediaType);
